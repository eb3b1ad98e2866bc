// The builder of a recipe page.  It is given the axes and, for each line of the block, the condition under which the line stands;
// it picks lines and never writes one.  The rules are those of schema/selecting.py and schema/block.py.
"use strict";

(() => {
  const root = document.querySelector("[data-recipe]");
  if (!root) return;
  const data = JSON.parse(document.getElementById("recipe-data").textContent);
  const lines = [...document.getElementById("lines-of-block").content.children];
  const form = root.querySelector("[data-cb=axes]");
  const block = document.getElementById("block");
  const part = (name) => root.querySelector(`[data-cb="${name}"]`);
  const defaults = settle({});
  let unknown = [];
  let chosen = fromAddress();

  function holds(when, selection) {
    return Object.entries(when).every(([axis, options]) => options.includes(selection[axis]));
  }

  function offered(axis, selection) {
    return holds(axis.when, selection) ? axis.options.filter((option) => holds(option.when, selection)) : [];
  }

  /** The selection nearest to some choices: each that is offered, and for the rest what is preferred. */
  function settle(choices) {
    const selection = {};
    for (const axis of data.axes) {
      const names = offered(axis, selection).map((option) => option.name);
      const preferred = axis.default.find((item) => names.includes(item.option) && holds(item.when, selection));
      const choice = names.includes(choices[axis.name]) ? choices[axis.name] : preferred ? preferred.option : names[0];
      if (choice !== undefined) selection[axis.name] = choice;
    }
    return selection;
  }

  function pick(conditions, from, selection) {
    return conditions.flatMap((when, index) => (holds(when, selection) ? [lines[from + index].cloneNode(true)] : []));
  }

  /** Show the lines whose conditions hold, joined as the data says. */
  function draw(selection) {
    const out = document.createDocumentFragment();
    const add = (nodes, join) => {
      nodes.forEach((node, index) => {
        if (index) out.append(join);
        out.append(...node.childNodes);
      });
    };
    let at = data.header.length;
    add(pick(data.header, 0, selection), "\n");
    out.append("\n");
    let first = true;
    for (const paragraph of data.paragraphs) {
      const comments = pick(paragraph.comments, at, selection);
      at += paragraph.comments.length;
      const own = pick(paragraph.lines, at, selection);
      at += paragraph.lines.length;
      if (!own.length) continue;
      if (!first) out.append("\n\n");
      first = false;
      add(comments, "\n");
      if (comments.length) out.append("\n");
      add(own, paragraph.join);
    }
    out.append("\n");
    block.replaceChildren(out);
  }

  function sentence(text) {
    return text && !text.endsWith(".") ? `${text}.` : text;
  }

  /** Mark what is chosen and what is not offered, and say why not. */
  function mark(selection) {
    const above = {};
    for (const axis of data.axes) {
      const field = form.querySelector(`fieldset[data-axis="${CSS.escape(axis.name)}"]`);
      const names = offered(axis, above).map((option) => option.name);
      field.toggleAttribute("data-closed", names.length === 0);
      const why = names.length ? [] : [`Not offered: ${axis.because}`];
      for (const input of field.querySelectorAll("input")) {
        const option = axis.options.find((item) => item.name === input.value);
        const open = names.includes(input.value);
        input.checked = selection[axis.name] === input.value;
        if (open) input.removeAttribute("aria-disabled");
        else input.setAttribute("aria-disabled", "true");
        if (!open && names.length) why.push(`${option.title}: ${sentence(option.because || "")}`);
      }
      const about = field.querySelector(`template[data-about="${CSS.escape(selection[axis.name] || "")}"]`);
      field.querySelector("[data-cb=about]").textContent = about ? about.content.textContent : "";
      field.querySelector("[data-cb=why]").textContent = why.join(" ");
      if (axis.name in selection) above[axis.name] = selection[axis.name];
    }
  }

  /** What the page states about the selection: badge, configuration, first request. */
  function state(selection) {
    const key = Object.entries(selection).map(([axis, option]) => `${axis}=${option}`).join("&");
    const fact = data.facts[data.index[key]];
    const [level, text] = fact.badge;
    const badge = part("badge");
    badge.className = `cb-badge cb-${level}`;
    badge.textContent = text;
    for (const name of ["reported", "measured", "failed", "none"]) {
      const notice = part(`notice-${name}`);
      if (notice) notice.hidden = name !== level;
    }
    const notice = part("notice");
    notice.hidden = ![...notice.children].some((child) => !child.hidden);
    const table = part("configuration");
    if (table) {
      table.replaceChildren(
        ...fact.configuration.map(([heading, value]) => {
          const row = document.createElement("tr");
          const head = document.createElement("th");
          head.scope = "row";
          head.textContent = heading;
          row.append(head, Object.assign(document.createElement("td"), { textContent: value }));
          return row;
        }),
      );
    }
    const client = part("client");
    if (client) client.textContent = fact.client;
    const sets = Object.entries(selection).filter(([axis, option]) => option !== defaults[axis] || !(axis in defaults));
    part("export").textContent =
      `python build_site.py --export-shell ${data.id}` + sets.map(([axis, option]) => ` --set ${axis}=${option}`).join("");
  }

  function fromAddress() {
    const choices = {};
    const given = new URLSearchParams(location.search);
    unknown = [];
    const asked = Object.fromEntries([...given].map(([name, value]) => [name.toLowerCase(), value]));
    const names = data.axes.map((axis) => axis.name.toLowerCase());
    for (const name of given.keys()) {
      if (!names.includes(name.toLowerCase()) && !name.startsWith("utm_")) unknown.push(name);
    }
    for (const axis of data.axes) {
      const wanted = (asked[axis.name.toLowerCase()] || "").toLowerCase();
      const option = axis.options.find((item) => item.name.toLowerCase() === wanted);
      if (option) choices[axis.name] = option.name;
      else if (wanted) unknown.push(`${axis.name}=${asked[axis.name.toLowerCase()]}`);
    }
    return choices;
  }

  function show(keepAddress) {
    const selection = settle(chosen);
    mark(selection);
    draw(selection);
    state(selection);
    const dropped = Object.entries(chosen).filter(([axis, option]) => selection[axis] !== option && option !== undefined);
    const strange = unknown.length ? `${unknown.join(", ")} is no choice of this recipe. ` : "";
    part("status").textContent = strange + (dropped.length
      ? `${dropped.map(([axis, option]) => `${axis}=${option}`).join(", ")} is not offered here; the block shows ${
          dropped.map(([axis]) => (axis in selection ? `${axis}=${selection[axis]}` : `no ${axis}`)).join(", ")
        } instead.`
      : "");
    if (keepAddress) return;
    const same = data.axes.every((axis) => selection[axis.name] === defaults[axis.name]);
    const query = same ? "" : `?${new URLSearchParams(selection)}`;
    history.replaceState(null, "", `${location.pathname}${query}${location.hash}`);
  }

  form.addEventListener("change", (event) => {
    chosen = { ...chosen, [event.target.name]: event.target.value };
    unknown = [];
    show(false);
  });
  form.addEventListener("click", (event) => {
    // A choice that is not offered can be reached and read, and is not taken.
    if (event.target.matches("input[aria-disabled]")) event.preventDefault();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("popstate", () => {
    chosen = fromAddress();
    show(true);
  });
  // Without this script the choices would change nothing, so they are closed until it runs.
  form.querySelectorAll("fieldset").forEach((field) => {
    field.disabled = false;
  });
  show(true);
})();
