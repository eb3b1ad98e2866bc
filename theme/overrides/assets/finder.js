// The finder of the home page: hide the cards that do not fit; keep the filters in the address.
"use strict";

(() => {
  const form = document.querySelector("[data-cb=facets]");
  if (!form) return;
  const cards = [...document.querySelectorAll(".cb-card")].map((element) => ({
    element,
    name: element.dataset.name,
    engine: element.dataset.engine,
    fits: JSON.parse(element.dataset.fits),
  }));
  const count = document.querySelector("[data-cb=count]");
  const nothing = document.querySelector("[data-cb=nothing]");
  const fields = [...form.elements].filter((field) => field.name);
  let unknown = [];

  function show() {
    const { q, engine, hardware, precision, memory } = Object.fromEntries(fields.map((field) => [field.name, field.value.trim()]));
    const words = q.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const card of cards) {
      const fits =
        words.every((word) => card.name.includes(word)) &&
        (!engine || card.engine === engine) &&
        card.fits.some(
          ([kind, format, need]) =>
            (!hardware || kind === hardware) && (!precision || format === precision) && (!(memory > 0) || need <= Number(memory)),
        );
      card.element.hidden = !fits;
      if (fits) shown += 1;
    }
    const all = cards.length;
    const found = shown === all ? `${all} recipe${all === 1 ? "" : "s"}` : `${shown} of ${all} recipes`;
    count.textContent = unknown.length ? `${found}, not filtered by what no recipe has: ${unknown.join(", ")}` : found;
    nothing.hidden = shown > 0;
  }

  function changed() {
    unknown = [];
    show();
    const query = new URLSearchParams(fields.filter((field) => field.value.trim()).map((field) => [field.name, field.value.trim()]));
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
  }

  function fromAddress() {
    const given = new URLSearchParams(location.search);
    unknown = [];
    for (const field of fields) {
      const wanted = given.get(field.name) || "";
      field.value = wanted;
      if (field.value === wanted && !(field.type === "number" && wanted && !(wanted > 0))) continue;
      unknown.push(`${field.name}=${wanted}`);
      field.value = "";
    }
    show();
  }

  form.hidden = false;
  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(changed));
  document.querySelector("[data-cb=clear]").addEventListener("click", () => form.reset());
  addEventListener("popstate", fromAddress);
  fromAddress();
})();
