// The page: login, navigation, and the view of the current address.

import { render } from "./vendor/htm-preact.js";
import * as api from "./lib/api.js";
import { settleAddress, useAddress } from "./lib/live.js";
import { Boundary, html, Person, useEffect, useState } from "./lib/ui.js";
import { Login, LoginAgain } from "./views/login.js";
import { Shell } from "./views/shell.js";
import { viewOf } from "./views/all.js";

function Main() {
  const [person, setPerson] = useState(undefined);
  const [error, setError] = useState(null);
  const [ended, setEnded] = useState(false);
  useEffect(() => {
    api.onSessionEnd(() => setEnded(true));
    api.session().then(setPerson, setError);
  }, []);
  const logIn = (found) => {
    setEnded(false);
    setPerson(found);
  };
  const address = useAddress();
  if (error) return html`<p class="failure" role="alert">${error.message}</p>`;
  if (person === undefined) return null;
  if (person === null) return html`<${Login} onLogin=${logIn} />`;
  const may = (tag) => person.tags.includes("administrator") || person.tags.includes(tag);
  const { View, title, ...place } = viewOf(address.parts);
  return html`<${Person.Provider} value=${{ ...person, may }}>
    <${Shell} title=${title} parts=${address.parts} onLogout=${() => api.logOut().finally(() => { setEnded(false); setPerson(null); })}>
      <${Boundary} key=${address.parts.join("/")}><${View} ...${place} /><//>
    <//>
    ${ended && html`<${LoginAgain} user=${person.user} onLogin=${logIn} />`}
  <//>`;
}

settleAddress();
render(html`<${Main} />`, document.getElementById("page"));
