"""The bundle of the page's modules: order of imports, modules loaded later, and refused forms."""

import pytest

from jumpmq.http.site.bundle import NotUnderstood, bundle, loaded_later, order

SOURCES = {
    "main.js": 'import { add as plus } from "./lib/sum.js";\n'
    'export const three = plus(1, 2);\nimport("./views/far.js");\n',
    "lib/sum.js": 'import * as base from "./base.js";\nexport function add(a, b) { return base.number(a) + b; }\n',
    "lib/base.js": "const inner = (x) => x;\nexport { inner as number };\n",
    "views/far.js": 'import { add } from "../lib/sum.js";\nimport { other } from "./other.js";\n',
}


def test_imports_come_first_and_exports_are_taken_from_them() -> None:
    assert order(SOURCES, "main.js") == ["lib/base.js", "lib/sum.js", "main.js"]
    text = bundle(SOURCES, "main.js")
    assert "return { number: inner };" in text
    assert 'const base = modules["lib/base.js"];' in text
    assert 'const { add: plus } = modules["lib/sum.js"];\nconst three' in text
    assert "return { three: three };" in text
    assert "import { " not in text


def test_what_is_loaded_later_has_bundled_modules_from_the_bundle() -> None:
    text = loaded_later("views/far.js", SOURCES["views/far.js"], order(SOURCES, "main.js"), "main.js")
    assert text.startswith('import { modules } from "../main.js"; const { add } = modules["lib/sum.js"];')
    assert 'import { other } from "./other.js";' in text


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"lib/base.js": 'import { add } from "./sum.js";'}, "a circle of imports"),
        ({"lib/base.js": 'import { gone } from "./gone.js";'}, "missing"),
        ({"lib/base.js": "export default 1;"}, "an unsupported form"),
        ({"lib/base.js": 'export * from "./sum.js";'}, "an unsupported form"),
        ({"lib/base.js": "import './sum.js';"}, "an unsupported form"),
    ],
)
def test_forms_that_are_not_understood_are_refused(changed: dict[str, str], reason: str) -> None:
    with pytest.raises(NotUnderstood, match=reason):
        bundle(SOURCES | changed, "main.js")
