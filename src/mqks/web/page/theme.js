// Dark or light: as the system says, or as was chosen here. Loaded before the page is drawn, so that it does not flash.
(() => {
  const ORDER = { auto: "light", light: "dark", dark: "auto" };
  const root = document.documentElement;

  function kept() {
    try {
      return localStorage.getItem("theme") in ORDER ? localStorage.getItem("theme") : "auto";
    } catch {
      return "auto"; // storage may be switched off
    }
  }

  function show(theme) {
    root.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (!button) return;
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
    button.setAttribute("aria-label", `Theme: ${theme}. Change to ${ORDER[theme]}.`);
    button.title = `Theme: ${theme}`;
  }

  show(kept());
  document.addEventListener("DOMContentLoaded", () => {
    show(kept());
    document.getElementById("theme").addEventListener("click", () => {
      const theme = ORDER[root.dataset.theme];
      try {
        localStorage.setItem("theme", theme);
      } catch {
        // it holds until the page is left
      }
      show(theme);
    });
  });
})();
