// On every page: load Material's own script when the reader first does something, and keep the colour switch working until then.
"use strict";

(() => {
  const waiting = document.querySelector("script[data-later]");
  const signs = ["pointermove", "pointerdown", "keydown", "focusin", "touchstart"];

  function load() {
    signs.forEach((sign) => removeEventListener(sign, load, true));
    const script = document.createElement("script");
    script.src = waiting.dataset.later;
    document.body.append(script);
  }
  if (waiting) signs.forEach((sign) => addEventListener(sign, load, { capture: true, passive: true }));

  // The colour switch, until Material's script takes it over: it keeps the choice under the same name and in the same form.
  const palette = document.querySelector("[data-md-component=palette]");
  if (palette) {
    const inputs = [...palette.querySelectorAll("input")];
    const dark = matchMedia("(prefers-color-scheme: dark)");

    function use(index, keep) {
      const wanted = inputs[index];
      const system = `(prefers-color-scheme: ${dark.matches ? "dark" : "light"})`;
      const input = index ? wanted : inputs.find((item) => item.dataset.mdColorMedia === system) || wanted;
      const color = {};
      for (const name of ["scheme", "primary", "accent"]) {
        color[name] = input.getAttribute(`data-md-color-${name}`);
        document.body.setAttribute(`data-md-color-${name}`, color[name]);
      }
      wanted.checked = true;
      inputs.forEach((item, i) => {
        item.nextElementSibling.hidden = i !== index;
      });
      if (keep) __md_set("__palette", { index, color: { media: wanted.dataset.mdColorMedia, ...color } });
    }

    let stored = null;
    try {
      stored = __md_get("__palette");
    } catch {
      // A browser that keeps no site data has no choice to remember.
    }
    use(stored && inputs[stored.index] ? stored.index : 0, false);
    palette.addEventListener("change", (event) => use(inputs.indexOf(event.target), true));
  }

  // What scrolls sideways can be reached with the keyboard.
  document.querySelectorAll(".highlight pre:not([tabindex]) > code").forEach((box) => {
    box.tabIndex = 0;
  });

  const announced = document.createElement("span");
  announced.className = "cb-hidden";
  announced.setAttribute("role", "status");
  document.body.append(announced);

  document.querySelectorAll("button[data-copy]").forEach((button) => {
    button.hidden = false;
    const said = button.textContent;
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      let done = true;
      try {
        await navigator.clipboard.writeText(source.textContent);
      } catch {
        // Without a secure context there is no clipboard to write to: copy a selection instead.
        getSelection().selectAllChildren(source);
        done = document.execCommand("copy");
        if (done) getSelection().removeAllRanges();
      }
      button.textContent = done ? "Copied" : "Select and copy";
      announced.textContent = button.textContent;
      setTimeout(() => {
        announced.textContent = "";
        button.textContent = said;
      }, 1600);
    });
  });
})();
