// Says aloud what has become of the page, where it has changed: #live is replaced as a whole, which readers do not hear.
(() => {
  "use strict";
  const said = document.getElementById("said");
  if (!said) return;
  const sum = () => document.getElementById(said.dataset.of)?.textContent.trim() || "";
  let known = sum();
  document.addEventListener("live:refreshed", () => {
    const now = sum();
    if (now && now !== known) said.textContent = now;
    known = now;
  });
})();
