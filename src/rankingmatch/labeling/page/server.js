// Requests to the server, the events it sends, and whether it can be reached.

import { banner } from "./dom.js";

// The request was wrong, and would be wrong again.
export class Refused extends Error {}
// The server could not be reached or could not do it now; the same request may succeed later.
export class Unavailable extends Error {
  /** @param {"connection" | "saving"} banner  which banner shows the sentence */
  constructor(sentence, banner) {
    super(sentence);
    this.banner = banner;
  }
}

const LOST = "The connection to the server is lost. If it was stopped, start it again with the same command. " +
  "You can go on: this page saves your labels as soon as the server is back. Do not close it before.";
const NEW_ADDRESS = "The server does not recognize this page, probably because it was started again. " +
  "Open the address that it prints, in another tab of this browser; then this page continues by itself.";
const TIMEOUT = 20000; // milliseconds

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT), ...options });
  } catch {
    throw new Unavailable(LOST, "connection");
  }
  if (response.ok) return response.json().catch(() => { throw new Unavailable(LOST, "connection"); });
  if (response.status === 401 || response.status === 403) throw new Unavailable(NEW_ADDRESS, "connection");
  const body = await response.json().catch(() => ({}));
  const sentence = body.error ?? `The server answered with status ${response.status}.`;
  throw response.status >= 500 ? new Unavailable(sentence, "saving") : new Refused(sentence);
}

export const get = (path, parameters = {}) => request(`${path}?${new URLSearchParams(parameters)}`);
export const post = (path, body) => request(path, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
});
export const imageAddress = (number, size = "large") => `/image/${number}?size=${size}`;

// The images handed to this page stay with it when it is reloaded; a duplicated tab is another client.
export const client = (() => {
  const reloaded = performance.getEntriesByType("navigation")[0]?.type === "reload";
  const known = reloaded ? sessionStorage.getItem("client") : null;
  const id = known ?? Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  sessionStorage.setItem("client", id);
  return id;
})();

const RETRY = 1000;
/** Calls `onState` with every state the server sends, and `onBack` when it can be reached again. */
export function listen(onState, onBack) {
  let lost = false;
  function connect() {
    const events = new EventSource("/events");
    events.addEventListener("open", () => {
      banner("connection", null);
      if (lost) onBack();
      lost = false;
    });
    events.addEventListener("state", (event) => onState(JSON.parse(event.data)));
    events.addEventListener("error", async () => {
      events.close();
      // The first failure may be a hiccup: the banner waits for the second.
      if (lost) await get("/state").then(() => banner("connection", null), (error) => banner("connection", error.message));
      lost = true;
      setTimeout(connect, RETRY);
    });
  }
  connect();
}
