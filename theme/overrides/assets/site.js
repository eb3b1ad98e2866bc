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

  // Material keeps the choice under this name and in this form; it takes over from here once it is loaded.
  const palette = document.querySelector("[data-md-component=palette]");
  if (palette) {
    const inputs = [...palette.querySelectorAll("input")];
    const stored = typeof __md_get === "function" ? __md_get("__palette") : null;
    const index = Math.max(0, stored && stored.index < inputs.length ? stored.index : 0);
    inputs.forEach((input, i) => {
      input.nextElementSibling.hidden = i !== index;
    });
    if (!stored && matchMedia("(prefers-color-scheme: dark)").matches) {
      document.body.setAttribute("data-md-color-scheme", "slate");
    }
  }

  // What scrolls sideways can be reached with the keyboard.
  document.querySelectorAll(".md-typeset__scrollwrap, .highlight pre > code").forEach((box) => {
    box.tabIndex = 0;
  });

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
      setTimeout(() => {
        button.textContent = said;
      }, 1600);
    });
  });
})();
