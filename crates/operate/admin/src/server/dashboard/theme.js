// Dark or light theme: the system's unless the user has chosen one. Runs before anything is drawn.
"use strict";
{
  const root = document.documentElement;
  const KEY = "quorate-colours";
  // The browser may refuse storage.
  const kept = () => { try { return localStorage.getItem(KEY) ?? ""; } catch { return ""; } };
  const show = theme => { if (theme) root.dataset.theme = theme; else delete root.dataset.theme; };
  show(kept());
  document.addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    select.value = kept();
    select.addEventListener("change", () => {
      show(select.value);
      try { localStorage.setItem(KEY, select.value); } catch { /* for this visit only */ }
    });
  });
}
