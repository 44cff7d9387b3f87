// What was done here and is not saved yet: posted in order, one at a time, until the server has it.

import { post, Unavailable } from "./server.js";
import { banner } from "./dom.js";

const DELAYS = [300, 1000, 2000, 4000]; // milliseconds between attempts

export class Outbox {
  /**
   * @param {() => void} changed  is called whenever something was added or saved
   * @param {() => Object} common  gives what every request contains
   */
  constructor(changed, common) {
    this.items = [];
    this.changed = changed;
    this.common = common;
    this.running = false;
    this.wake = () => {};
  }

  /**
   * Resolves with the server's answer; rejects if the server refuses it. An item that must not be posted twice (an undo whose
   * answer was lost may have been done) is not `repeatable`, and is rejected when the server cannot be reached.
   */
  post(path, body, { effect = null, repeatable = true } = {}) {
    return new Promise((resolve, reject) => {
      this.items.push({ path, body, effect, repeatable, resolve, reject });
      this.changed();
      if (!this.running) this.run();
    });
  }

  get unsaved() {
    return this.items.length;
  }

  async run() {
    this.running = true;
    while (this.items.length) await this.deliver(this.items[0]);
    this.running = false;
  }

  async deliver(item) {
    for (let attempt = 0; ; attempt += 1) {
      try {
        const answer = await post(item.path, { ...this.common(), ...item.body });
        for (const key of ["connection", "saving"]) banner(key, null);
        this.remove(item, () => item.resolve(answer));
        return;
      } catch (error) {
        if (!(error instanceof Unavailable) || !item.repeatable) {
          this.remove(item, () => item.reject(error));
          return;
        }
        banner(error.banner, error.message);
        await this.pause(DELAYS[Math.min(attempt, DELAYS.length - 1)]);
      }
    }
  }

  pause(milliseconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.wake = () => { clearTimeout(timer); resolve(); };
    });
  }

  // The item leaves before its answer is handled, so that its effect is not counted twice.
  remove(item, settle) {
    this.items.splice(this.items.indexOf(item), 1);
    settle();
    this.changed();
  }
}
