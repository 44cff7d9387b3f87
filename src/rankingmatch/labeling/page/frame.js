// Large images: loaded and decoded ahead, shown at once, zoomed.

import { element } from "./dom.js";
import { get, imageAddress, Refused } from "./server.js";

// --- loading ahead ----------------------------------------------------------------------------------------------
// A browser opens six connections to a server; labels and events must not wait behind images.
const AT_ONCE = 3;
const KEPT = 40;
const entries = new Map(); // number → { image, ready (a promise), decoded }
const waiting = [];
let loading = 0;

function start(entry) {
  loading += 1;
  entry.started = true;
  entry.image.src = imageAddress(entry.number);
  entry.image.decode().then(() => { entry.decoded = true; entry.resolve(); }, entry.reject).finally(() => {
    loading -= 1;
    startWaiting();
  });
}
function startWaiting() {
  while (loading < AT_ONCE && waiting.length) {
    const entry = waiting.shift();
    if (!entry.started) start(entry);
  }
}
function entryOf(number) {
  let entry = entries.get(number);
  if (!entry) {
    entry = { number, image: element("img", { draggable: "false" }), decoded: false, started: false };
    entry.ready = new Promise((resolve, reject) => Object.assign(entry, { resolve, reject }));
    entry.ready.catch(() => entries.delete(number)); // the next attempt starts from nothing
    waiting.push(entry);
  }
  entries.delete(number); // the order of the map is the order of use
  entries.set(number, entry);
  return entry;
}
export function preload(numbers) {
  numbers.forEach((number, index) => {
    const entry = entryOf(number);
    // The browser may have dropped the pixels of the next image meanwhile.
    if (entry.decoded && index === 0) setTimeout(() => entry.image.decode().catch(() => {}), 50);
  });
  for (const number of [...entries.keys()].slice(0, Math.max(0, entries.size - KEPT))) {
    if (entries.get(number).decoded && !entries.get(number).image.isConnected) entries.delete(number);
  }
  startWaiting();
}

// --- the frame --------------------------------------------------------------------------------------------------
const ZOOM = 2.5; // times the size that fits
const SMALL = 96; // pixels; smaller images are shown with sharp pixels

export class Frame {
  /** @param {HTMLElement} container  @param {(zoomed: boolean) => void} onZoom */
  constructor(container, onZoom = () => {}) {
    this.container = container;
    this.onZoom = onZoom;
    this.number = null;
    this.visible = false; // the image of `number` can be seen
    this.zoomed = false;
    container.addEventListener("click", (event) => { if (this.visible) this.zoom(!this.zoomed, event); });
  }

  show(number, description) {
    if (this.number === number && this.visible) {
      this.image.alt = description;
      return;
    }
    this.zoom(false);
    this.number = number;
    const entry = entryOf(number);
    if (entry.decoded) this.set(entry.image, description);
    else {
      this.visible = false;
      this.container.replaceChildren(element("p", { class: "loading" }, "Loading …"));
      if (!entry.started) start(entry);
      entry.ready.then(() => { if (this.number === number) this.set(entry.image, description); },
        () => { if (this.number === number) this.explain(number); });
    }
  }

  set(image, description) {
    image.alt = description;
    image.classList.toggle("small", Math.max(image.naturalWidth, image.naturalHeight) <= SMALL);
    this.image = image;
    this.visible = true;
    this.container.replaceChildren(image);
  }

  // An image element does not tell why it failed.
  async explain(number) {
    let sentence = "This image cannot be shown.";
    await get(`/image/${number}`, { size: "large" }).catch((error) => {
      if (error instanceof Refused) sentence = error.message;
    });
    if (this.number === number) this.text(sentence);
  }

  text(...children) {
    this.visible = false;
    this.zoom(false);
    this.container.replaceChildren(element("div", { class: "loading" }, ...children));
  }

  clear(...children) {
    this.number = null;
    this.text(...children);
  }

  retry(description) {
    const { number } = this;
    if (number === null || this.visible) return;
    this.number = null;
    this.show(number, description);
  }

  zoom(zoomed, event = null) {
    if (zoomed && !this.visible) return;
    if (this.zoomed === zoomed) return;
    const { container, image } = this;
    this.zoomed = zoomed;
    const { width, height } = container.getBoundingClientRect();
    container.classList.toggle("zoomed", zoomed);
    if (zoomed) {
      const scale = ZOOM * Math.min(width / image.naturalWidth, height / image.naturalHeight);
      const wide = image.naturalWidth * scale, tall = image.naturalHeight * scale;
      Object.assign(image.style, { width: `${wide}px`, height: `${tall}px` });
      // The point under the pointer stays in view; without a pointer, the center.
      const box = container.getBoundingClientRect();
      const x = event ? (event.clientX - box.left - (width - wide / ZOOM) / 2) * ZOOM : wide / 2;
      const y = event ? (event.clientY - box.top - (height - tall / ZOOM) / 2) * ZOOM : tall / 2;
      container.scrollTo(x - width / 2, y - height / 2);
    } else Object.assign(image.style, { width: "", height: "" });
    this.onZoom(zoomed);
  }
}
