// Light, dark, or as the system is set.

const KEY = "ferrovirt.theme";
const THEMES = ["auto", "light", "dark"];

export function installTheme(button) {
  const current = () => {
    const stored = localStorage.getItem(KEY);
    return THEMES.includes(stored) ? stored : "auto";
  };
  const apply = () => {
    const theme = current();
    document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(current()) + 1) % THEMES.length];
    localStorage.setItem(KEY, next);
    apply();
  });
  apply();
}
