// The next moments in the zone of whoever looks. Without this script the column stays hidden.
(() => {
  "use strict";
  const pad = (n) => String(n).padStart(2, "0");
  const fill = () => {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    document.querySelectorAll("[data-moment]").forEach((cell) => {
      const at = new Date(cell.dataset.moment);
      cell.textContent = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
    });
    document.querySelectorAll(".here").forEach((cell) => { cell.hidden = false; });
    document.querySelectorAll("th.here").forEach((cell) => { cell.textContent = `Here (${zone})`; });
  };
  document.addEventListener("DOMContentLoaded", fill);
  document.addEventListener("live:refreshed", fill);
  if (document.readyState !== "loading") fill();
})();
