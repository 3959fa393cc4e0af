// The front end of the explorer, for the widget and for the local page.
//
// Python keeps the evidence, its history and the answers; this file sends actions and shows replies
// (session.py describes both). One message is under way at a time. Actions that are made meanwhile
// are collected and sent together, so that the answer shown always belongs to the evidence shown.

const SVG = "http://www.w3.org/2000/svg";
const HELP = [
  ["Click, or Enter", "observe a state; once more releases it"],
  ["Shift and click, or Shift+Enter", "set it by do()"],
  ["Drag a bar, or + and −", "soft evidence"],
  ["Paint on a picture, or 1 and 0", "observe on and off"],
  ["Delete", "release"],
  ["Click a name, or w", "why: what each observation contributes"],
  ["Arrow keys, Tab", "move within a variable, to the next one"],
  ["Ctrl+Z, Ctrl+Y", "undo, redo"],
];
const MARKS = { observed: "●", do: "▲", soft: "◐" };
const WORDS = { observed: "observed", do: "set by do", soft: "soft evidence" };
// The smallest scale of the picture, the pixels after which a click becomes a drag, the change of
// log-odds by a key, and the milliseconds after which a slow answer is announced.
const MIN_SCALE = 0.8, DRAG_PIXELS = 5, STEP = 0.5, SLOW = 200;
// Units of a layer that are listed one by one, entries of the list, and the width of a whole bar.
const MANY = 6, LISTED = 40, FULL = 72;
// The factor of a step of zooming.
const ZOOM = 1.25;

const percent = (p) => (p === null || p === undefined ? "?" : `${(100 * p).toFixed(1)} %`);

// Two standard errors on both sides of the end of a bar.
function errorLine(bar, p, error) {
  const ends = [-2, 2].map((by) => Math.min(1, Math.max(0, p + by * error)));
  const line = document.createElementNS(SVG, "path");
  const [x, y] = ["x", "y"].map((name) => Number(bar.getAttribute(name)));
  const middle = y + Number(bar.getAttribute("height")) / 2;
  line.setAttribute("class", "pgm-spread");
  line.setAttribute("d", `M${x + FULL * ends[0]} ${middle}H${x + FULL * ends[1]}`);
  bar.after(line);
  return line;
}

function make(tag, attributes = {}, ...children) {
  const out = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") out.addEventListener(name, value);
    else if (value === true) out.setAttribute(name, "");
    else if (value !== false) out.setAttribute(name, value);
  }
  out.append(...children);
  return out;
}

class Explorer {
  constructor(root, transport) {
    this.root = root;
    this.transport = transport;
    this.seq = 0;
    this.busy = false;
    this.pending = [];
    this.hello = true;
    this.whyAt = null;
    this.whyAsked = true;
    this.brush = 1;
    this.press = null;
    this.build();
    this.flush();
  }

  end() {
    this.resized.disconnect();
    this.transport.end();
    this.root.replaceChildren();
  }

  // The parts of the page

  build() {
    const button = (text, label, click) => make("button", { type: "button", title: label, click }, text);
    this.title = make("strong", { class: "pgm-headline" });
    this.undo = button("Undo", "Undo (Ctrl+Z)", () => this.send({ kind: "undo" }));
    this.redo = button("Redo", "Redo (Ctrl+Y)", () => this.send({ kind: "redo" }));
    this.clear = button("Clear", "Release everything", () => this.send({ kind: "clear" }));
    this.zoom = 1;
    const larger = button("+", "Larger", () => this.zoomed(ZOOM));
    const smaller = button("−", "Smaller", () => this.zoomed(1 / ZOOM));
    smaller.setAttribute("aria-label", "Smaller");
    larger.setAttribute("aria-label", "Larger");
    this.names = make("datalist", { id: `pgm-names-${Math.random().toString(36).slice(2)}` });
    this.search = make("input", {
      type: "search", placeholder: "find a variable", "aria-label": "Find a variable",
      list: this.names.id, autocomplete: "off", change: () => this.find(this.search.value),
    });
    this.brushes = make("fieldset", { class: "pgm-brushes" }, make("legend", {}, "Brush"));
    const group = `pgm-brush-${this.names.id}`;
    this.inks = [1, 0, null].map((state) => {
      const radio = make("input", { type: "radio", name: group, change: () => { this.brush = state; } });
      radio.checked = state === this.brush;
      const word = make("span", {}, "unobserved");
      this.brushes.append(make("label", {}, radio, word));
      return word;
    });
    this.canvas = make("div", { class: "pgm-canvas" });
    this.given = make("ul", { class: "pgm-given" });
    this.code = make("code", { class: "pgm-code", tabindex: "0", "aria-label": "The evidence as code" });
    this.copied = make("button", { type: "button", click: () => this.copy() }, "Copy the evidence as code");
    this.why = make("section", { class: "pgm-why", "aria-label": "Why" });
    this.error = make("p", { class: "pgm-error", role: "alert", hidden: true });
    this.foot = make("footer", { class: "pgm-foot", role: "status", "aria-live": "polite" });
    const help = make("details", { class: "pgm-help" }, make("summary", {}, "Mouse and keys"));
    const list = make("dl");
    for (const [keys, text] of HELP) list.append(make("dt", {}, keys), make("dd", {}, text));
    help.append(list);
    const tools = make("div", { class: "pgm-tools", role: "toolbar", "aria-label": "Explorer" },
      this.undo, this.redo, this.clear, smaller, larger, this.search, this.names, this.brushes);
    const side = make("aside", { class: "pgm-side" }, make("h2", {}, "Given"), this.given,
      this.copied, this.code, this.why, help);
    this.root.classList.add("pgm-explorer");
    // JupyterLab would take keys such as Delete and 0 for shortcuts of its own.
    this.root.dataset.lmSuppressShortcuts = "true";
    this.root.replaceChildren(
      make("header", { class: "pgm-head" }, this.title, tools),
      // Errors appear below the picture, which stays where it is under the pointer.
      make("div", { class: "pgm-body" }, this.canvas, side), this.error, this.foot);
    this.explain();
    this.root.addEventListener("keydown", (event) => this.shortcut(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("pointerdown", (event) => this.down(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerup", (event) => this.up(event));
    this.canvas.addEventListener("pointercancel", () => this.cancel());
    this.resized = new ResizeObserver(() => this.fit());
    this.resized.observe(this.canvas);
  }

  // Messages

  send(...actions) {
    this.pending.push(...actions);
    if (!this.busy) this.flush();
  }

  async flush() {
    this.busy = true;
    this.root.setAttribute("aria-busy", "true");
    const slow = setTimeout(() => this.root.classList.add("pgm-slow"), SLOW);
    try {
      while (this.hello || this.pending.length || !this.whyAsked) {
        const message = { seq: ++this.seq, actions: this.pending, hello: this.hello };
        // Reasons take several answers, so that they are asked for when nothing else waits.
        if (!this.pending.length && !this.hello && this.whyAt !== null) message.why = this.whyAt;
        if (!this.pending.length && !this.hello) this.whyAsked = true;
        this.pending = [];
        this.hello = false;
        const reply = await this.transport.ask(message);
        if (reply.seq === message.seq) this.show(reply);
        if (message.why === undefined) this.whyAsked = this.whyAt === null;
      }
    } catch (fault) {
      this.fail(`no answer from Python: ${fault.message}`);
    }
    clearTimeout(slow);
    this.root.classList.remove("pgm-slow");
    this.root.removeAttribute("aria-busy");
    this.busy = false;
  }

  fail(text) {
    this.error.textContent = text;
    this.error.hidden = text === "";
  }

  // Replies

  show(reply) {
    this.reply = reply;
    if (reply.title !== undefined) {
      this.title.textContent = reply.title;
      this.large = reply.large;
      this.names.replaceChildren(...reply.names.map((name) => make("option", { value: name })));
    }
    if (reply.scene) this.draw(reply.scene);
    if (reply.why) this.explain(reply.why);
    // They stay in use: an action that is not answered yet may already be there to undo.
    this.undo.setAttribute("aria-disabled", !reply.undo);
    this.redo.setAttribute("aria-disabled", !reply.redo);
    this.fail(reply.refused || reply.error);
    this.code.textContent = reply.code;
    this.list(reply.given);
    this.update(reply);
    const { kind, good, status, plan, log } = reply.foot;
    this.foot.classList.toggle("pgm-doubt", !good);
    this.foot.replaceChildren(make("b", {}, kind), ...[log, status, plan].filter((text) => text)
      .map((text) => make("span", {}, text)));
  }

  list(given) {
    // Many units of one layer are one entry.
    const layers = new Map();
    for (const one of given) {
      const key = `${one.kind} ${one.layer} ${one.fixed}`;
      layers.set(key, [...(layers.get(key) ?? []), one]);
    }
    const entries = [...layers.values()].flatMap((ones) => (ones.length <= MANY ? ones.map((one) => [one])
      : [ones]));
    const shown = entries.slice(0, LISTED).map((ones) => {
      const [{ kind, layer, fixed, text }] = ones;
      const words = ones.length === 1 ? text : `${layer}: ${ones.length} units ${WORDS[kind]}`;
      const item = make("li", { class: `pgm-is-${kind}` }, `${MARKS[kind]} ${words} `);
      if (!fixed) {
        item.append(make("button", {
          type: "button", "aria-label": `Release ${words}`,
          click: () => this.send({ kind: "release", at: ones.map((one) => one.at) }),
        }, "×"));
      }
      return item;
    });
    const more = entries.length - shown.length;
    if (more) shown.push(make("li", {}, `and ${more} more`));
    if (!given.length) shown.push(make("li", { class: "pgm-nothing" }, "nothing yet: click on a state"));
    this.given.replaceChildren(...shown);
  }

  draw(scene) {
    const held = this.place().activeElement?.dataset?.at;
    const parsed = new DOMParser().parseFromString(scene.svg, "image/svg+xml");
    this.svg = document.importNode(parsed.documentElement, true);
    this.svg.setAttribute("role", "group");
    this.svg.classList.add("pgm-live");
    this.size = [this.svg.width.baseVal.value, this.svg.height.baseVal.value];
    this.canvas.replaceChildren(this.svg);
    this.nodes = new Map();
    this.parts = [];
    const painted = scene.nodes.filter((node) => node.form === "picture");
    // The brush has the names of the states where all pictures share them.
    const words = new Set(painted.map((node) => node.states.join("\n")));
    const named = words.size === 1 && !words.has("0\n1");
    const names = named ? painted[0].states : ["off", "on"];
    [1, 0].forEach((state, i) => { this.inks[i].textContent = names[state]; });
    for (const node of scene.nodes) {
      const group = this.svg.querySelector(`[data-node="${node.number}"]`);
      const members = [...group.querySelectorAll("[data-at]")];
      const title = group.querySelector(".pgm-title");
      const first = Object.keys(node.units)[0];
      group.setAttribute("role", "group");
      group.setAttribute("aria-label", node.name);
      title.dataset.why = first;
      title.setAttribute("role", "button");
      title.setAttribute("tabindex", "-1");
      title.setAttribute("aria-label", `${node.name}: why?`);
      members.forEach((element, index) => {
        const { at } = element.dataset;
        const state = Number(element.dataset.state);
        if (node.form !== "means") element.setAttribute("role", "button");
        element.setAttribute("tabindex", index ? "-1" : "0");
        this.parts.push({
          element, node, index, at, state, name: node.units[at], word: node.states[state],
          bar: element.querySelector(".pgm-bar"), ghost: element.querySelector(".pgm-ghost"),
          ink: element.querySelector(".pgm-ink"), number: element.querySelector(".pgm-number"),
        });
      });
      this.nodes.set(node.number, { ...node, group, members, title });
    }
    this.byElement = new Map(this.parts.map((part) => [part.element, part]));
    this.brushes.hidden = !painted.length;
    this.fit();
    if (held) this.svg.querySelector(`[data-at="${held}"]`)?.focus();
  }

  fit() {
    if (!this.svg) return;
    const whole = (this.canvas.clientWidth - 4) / this.size[0];
    const scale = this.zoom * Math.min(1, Math.max(MIN_SCALE, whole));
    this.svg.setAttribute("width", this.size[0] * scale);
    this.svg.setAttribute("height", this.size[1] * scale);
  }

  zoomed(by) {
    this.zoom = Math.min(4, Math.max(0.2, this.zoom * by));
    this.fit();
  }

  update(reply) {
    const units = new Map(reply.units.map((unit) => [unit.at, unit]));
    const given = new Map(reply.given.map((one) => [one.at, one]));
    for (const part of this.parts) {
      const unit = units.get(part.at), held = given.get(part.at), { element, node } = part;
      const here = held && (held.kind === "soft" || node.form === "picture" || node.form === "means"
        || held.state === part.state);
      for (const kind of Object.keys(MARKS)) element.classList.toggle(`pgm-is-${kind}`, held?.kind === kind);
      let say;
      if (node.form === "means") {
        part.ink.setAttribute("fill-opacity", Math.abs(unit?.share ?? 0));
        say = `${part.name}: mean ${unit?.mean ?? "unknown"}`;
      } else {
        const p = unit?.p[part.state], prior = unit?.prior?.[part.state];
        const error = unit?.error?.[part.state] ?? 0;
        element.dataset.p = p ?? "";
        if (part.bar) {
          part.bar.setAttribute("width", FULL * (p ?? 0));
          part.ghost.setAttribute("width", FULL * (prior ?? 0));
          part.line?.remove();
          part.line = error > 0 ? errorLine(part.bar, p, error) : undefined;
          part.number.textContent = `${here ? MARKS[held.kind] : ""} ${unit ? percent(p) : "–"}`;
        } else {
          part.ink.setAttribute("fill-opacity", p ?? 0);
        }
        say = `${part.name}: ${part.word}, ${unit ? percent(p) : "no answer"}`;
        if (error > 0) say += ` ± ${percent(error)}`;
        if (prior !== undefined && unit) say += `, without evidence ${percent(prior)}`;
        element.setAttribute("aria-pressed", Boolean(held && held.kind !== "soft" && held.state === part.state));
      }
      if (held) say += `, ${WORDS[held.kind]}${held.kind !== "soft" && !here ? " in another state" : ""}`;
      element.setAttribute("aria-label", say);
      if (!part.bar) {
        let tip = element.querySelector("title");
        if (!tip) element.prepend(tip = document.createElementNS(SVG, "title"));
        tip.textContent = say;
      }
    }
  }

  // Reasons

  ask(at) {
    this.whyAt = at;
    this.whyAsked = false;
    if (!this.busy) this.flush();
  }

  explain(why) {
    const head = make("h2", {}, why?.name ? `Why ${why.name}?` : "Why?");
    if (!why) {
      this.why.replaceChildren(head, make("p", { class: "pgm-nothing" }, "click on the name of a variable"));
      return;
    }
    const parts = [head];
    if (why.error) parts.push(make("p", {}, why.error));
    else if (!why.rows.length) parts.push(make("p", {}, "nothing is observed"));
    else {
      const body = make("tbody");
      for (const row of why.rows) {
        row.changes.forEach((change, i) => {
          const bar = make("span", { class: change.share < 0 ? "pgm-against" : "pgm-for" });
          bar.style.width = `${50 * Math.abs(change.share)}%`;
          bar.style.marginLeft = `${change.share < 0 ? 50 + 50 * change.share : 50}%`;
          body.append(make("tr", {},
            make("th", { scope: "row" }, i ? "" : row.text), make("td", {}, change.state),
            make("td", {}, change.removed), make("td", {}, change.alone),
            make("td", { class: "pgm-share", "aria-hidden": "true" }, bar)));
        });
      }
      const names = ["observation", "state", "beside others", "alone", ""];
      parts.push(make("table", {},
        make("caption", {}, `What each observation adds to the log-odds (${why.kind}): beside all `
          + "others, and as the only one."),
        make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)))), body));
    }
    if (this.large) {
      const node = [...this.nodes.values()].find((one) => why.at in one.units);
      if (node) {
        parts.push(make("button", { type: "button", click: () => this.find(node.name) },
          `Show what is around ${node.name}`));
      }
    }
    this.why.replaceChildren(...parts);
  }

  find(name) {
    const show = () => {
      const node = [...this.nodes.values()].find((one) => one.name === name);
      node?.group.scrollIntoView({ block: "center", inline: "center" });
      node?.members[0]?.focus();
    };
    if (!name) return;
    if (this.large) {
      this.send({ kind: "focus", name });
      const wait = setInterval(() => { if (!this.busy) { clearInterval(wait); show(); } }, 30);
    } else if ([...this.nodes.values()].some((one) => one.name === name)) show();
    else this.fail(`there is no variable "${name}"`);
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.code.textContent);
      this.copied.textContent = "Copied";
    } catch {
      // Without permission for the clipboard, the text is selected instead.
      getSelection().selectAllChildren(this.code);
      this.copied.textContent = "Selected: copy it with Ctrl+C";
    }
    setTimeout(() => { this.copied.textContent = "Copy the evidence as code"; }, 2000);
  }

  // Mouse and touch

  part(target) {
    return this.byElement?.get(target?.closest?.("[data-at]"));
  }

  // The document, or the shadow tree in which marimo puts a widget.
  place() {
    return this.root.getRootNode();
  }

  x(event) {
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse()).x;
  }

  down(event) {
    if (event.button) return;
    const title = event.target.closest?.("[data-why]");
    if (title) this.ask(title.dataset.why);
    const part = this.part(event.target);
    if (!part || part.node.form === "means") return;
    this.press = { part, start: event.clientX, drag: false, stroke: new Map([[part.at, part]]), shift: event.shiftKey };
    this.focus(part.element);
    if (part.node.form === "picture") part.element.classList.add("pgm-painted");
    event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    const press = this.press;
    if (!press) return;
    const { part } = press;
    if (part.node.form === "picture") {
      const under = this.part(this.place().elementFromPoint(event.clientX, event.clientY));
      if (under?.node === part.node && !press.stroke.has(under.at)) {
        press.stroke.set(under.at, under);
        under.element.classList.add("pgm-painted");
      }
    } else if (part.bar && (press.drag || Math.abs(event.clientX - press.start) > DRAG_PIXELS)) {
      press.drag = true;
      press.to = Math.min(1, Math.max(0, (this.x(event) - Number(part.bar.getAttribute("x"))) / FULL));
      part.bar.setAttribute("width", FULL * press.to);
      part.number.textContent = `◐ ${percent(press.to)}`;
    }
  }

  up(event) {
    const press = this.press;
    if (!press) return;
    this.cancel();
    const { part } = press;
    if (part.node.form === "picture") this.paint([...press.stroke.keys()], this.brush, press.shift);
    else if (press.drag) this.send({ kind: "soft", at: part.at, state: part.state, to: press.to });
    else this.choose(part, press.shift || event.shiftKey);
  }

  cancel() {
    for (const { element } of this.press?.stroke.values() ?? []) element.classList.remove("pgm-painted");
    this.press = null;
  }

  choose(part, done) {
    this.send({ kind: "set", at: [part.at], state: part.state, do: done, toggle: true });
  }

  paint(at, state, done) {
    if (state === null) this.send({ kind: "release", at });
    else this.send({ kind: "set", at, state, do: done, toggle: at.length === 1 });
  }

  // Keys

  shortcut(event) {
    if (!(event.ctrlKey || event.metaKey) || event.target.closest("input")) return;
    const key = event.key.toLowerCase();
    const kind = key === "y" || (key === "z" && event.shiftKey) ? "redo" : key === "z" ? "undo" : "";
    if (!kind) return;
    event.preventDefault();
    event.stopPropagation();
    this.send({ kind });
  }

  focus(element) {
    const part = this.byElement.get(element);
    if (part) {
      const { members } = this.nodes.get(part.node.number);
      for (const other of members) other.setAttribute("tabindex", other === element ? "0" : "-1");
    }
    element?.focus();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const title = event.target.closest?.("[data-why]");
    if (title && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      this.ask(title.dataset.why);
      return;
    }
    const part = this.part(event.target);
    if (title && event.key === "ArrowDown") {
      event.preventDefault();
      this.focus(title.parentNode.querySelector("[data-at]"));
    }
    if (!part) return;
    const { node, index, at, state } = part, { members, title: name } = this.nodes.get(node.number);
    const steps = {
      bars: { ArrowUp: -1, ArrowDown: 1 },
      strip: { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -node.states.length, ArrowRight: node.states.length },
      picture: { ArrowUp: -node.columns, ArrowDown: node.columns, ArrowLeft: -1, ArrowRight: 1 },
    };
    steps.means = steps.picture;
    const step = steps[node.form][event.key];
    let used = true;
    if (step) {
      const strip = node.form === "strip" && Math.abs(step) === 1;
      const edge = strip && (state + step < 0 || state + step >= node.states.length);
      if (members[index + step] && !edge) this.focus(members[index + step]);
      else if (event.key === "ArrowUp") name.focus();
    } else if (event.key === "Home" || event.key === "End") {
      this.focus(members.at(event.key === "Home" ? 0 : -1));
    } else if (event.key === "w") this.ask(at);
    else if (node.form === "means") used = false;
    else if (event.key === "Delete" || event.key === "Backspace") this.send({ kind: "release", at: [at] });
    else if (event.key === "Enter" || event.key === " ") {
      if (node.form === "picture") this.paint([at], this.brush, event.shiftKey);
      else this.choose(part, event.shiftKey);
    } else if (node.form === "picture" && (event.key === "0" || event.key === "1")) {
      this.send({ kind: "set", at: [at], state: Number(event.key), do: false, toggle: false });
    } else if (event.key === "+" || event.key === "=" || event.key === "-") {
      this.send({ kind: "soft", at, state, by: event.key === "-" ? -STEP : STEP });
    } else used = false;
    if (!used) return;
    event.preventDefault();
    event.stopPropagation();
  }
}

// Messages over the connection of the notebook.
function overWidget(model) {
  const waiting = new Map();
  const receive = (reply) => {
    waiting.get(reply.seq)?.(reply);
    waiting.delete(reply.seq);
  };
  model.on("msg:custom", receive);
  return {
    ask: (message) => new Promise((done) => {
      waiting.set(message.seq, done);
      model.send(message);
    }),
    end: () => model.off("msg:custom", receive),
  };
}

// Messages to the local server that sent this file.
function overServer() {
  return {
    ask: async (message) => {
      const reply = await fetch("ask", {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(message),
      });
      if (!reply.ok) throw new Error(await reply.text());
      return reply.json();
    },
    end: () => {},
  };
}

function render({ model, el }) {
  const explorer = new Explorer(el, overWidget(model));
  return () => explorer.end();
}

const page = document.getElementById("pgmengine-explorer");
if (page) new Explorer(page, overServer());

export default { render };
