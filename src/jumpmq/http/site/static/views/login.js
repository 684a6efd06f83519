// Login form.

import { logIn } from "../lib/api.js";
import { Dialog, Form, html } from "../lib/ui.js";

const FIELDS = [
  { name: "username", label: "User", required: true, autocomplete: "username" },
  { name: "password", label: "Password", type: "password", required: true, autocomplete: "current-password" },
];

export const Login = ({ onLogin }) => html`
  <main class="login">
    <div class="panel">
      <p class="brand"><span class="logo" aria-hidden="true"></span>JumpMQ</p>
      <h1 class="hidden">Log in to JumpMQ</h1>
      <${Form} fields=${FIELDS} label="Log in" submit=${({ username, password }) => logIn(username, password)} done=${onLogin} />
      <p class="note">JumpMQ ${document.querySelector("meta[name=version]")?.content}. A new broker has the user guest with the password guest, for clients of the same machine.</p>
    </div>
  </main>`;

/** Login dialog over the page after the session has ended. The input on the page stays. */
export const LoginAgain = ({ user, onLogin }) => html`
  <${Dialog} title="Your session has ended" lasting>
    <p>Log in again to go on; what you have typed is still there.</p>
    <${Form} fields=${FIELDS.map((field) => (field.name === "username" ? { ...field, value: user } : field))} label="Log in" submit=${({ username, password }) => logIn(username, password)} done=${onLogin} />
  <//>`;
