// The virtual hosts, for forms that ask where.

import { get } from "../lib/api.js";
import { useEffect, useState } from "../lib/ui.js";

export function useHosts() {
  const [hosts, setHosts] = useState(["/"]);
  useEffect(() => {
    get("/api/vhosts", { columns: "name" }).then((found) => setHosts(found.map(({ name }) => name)), () => {});
  }, []);
  return hosts;
}
