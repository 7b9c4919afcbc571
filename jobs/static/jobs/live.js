// Keeps a page fresh: follows what <body data-live> names over a websocket, and on news fetches the same URL and swaps
// #live. Never while somebody selects, presses or types in it, never twice at once, and honest about what is not live.
(() => {
  "use strict";
  const path = document.body.dataset.live;
  const mark = document.getElementById("live-state");
  if (!path || !mark) return;

  const LEAST_MS = 500, SLOW_MS = 15000, SILENT_MS = 65000, SHORTEST_MS = 1000, LONGEST_MS = 30000, PATIENCE_MS = 20000;
  const OVER = { 4401: "Signed out", 4403: "Not allowed any more", 4404: "No longer there" };
  let asOf = new Date();                      // what is on the page was true then
  let socket = null, opened = false, failures = 0, number = null, over = false;
  let wanted = false, busy = false, last = -LEAST_MS, slow = false;
  let timer = 0, retry = 0, silence = 0;

  // --- what it says ---

  const say = (words, on) => {
    if (mark.textContent !== words) mark.textContent = words;
    mark.hidden = false;
    mark.classList.toggle("on", on);
    mark.classList.toggle("off", !on);
  };
  const state = () => {
    if (over) return;
    const since = asOf.toLocaleTimeString("en-GB");
    if (opened) say("Live", true);
    else if (slow) say("Updates every 15 s", false);
    else if (failures) say(`Connection lost, reconnecting; what you see is as of ${since}`, false);
  };
  const finish = (words) => {
    over = true;
    [timer, retry, silence].forEach(clearTimeout);
    if (socket) socket.close();
    const link = Object.assign(document.createElement("a"), { href: location.href, textContent: words });
    say("", false);
    mark.replaceChildren(link);
  };

  // --- refreshing ---

  const held = () => {
    const live = document.getElementById("live"), chosen = document.getSelection(), field = document.activeElement;
    // Pressed and not yet let go: a click on what is replaced meanwhile would be lost.
    return live.matches(":active") || (chosen && !chosen.isCollapsed && live.contains(chosen.anchorNode))
      || (live.contains(field) && field.matches("input, select, textarea, [contenteditable]"));
  };
  // An element without an id is known by its tag, where it leads, and which of these it is.
  const place = (live, one) => {
    const like = one.tagName + (one.hasAttribute("href") ? `[href="${CSS.escape(one.getAttribute("href"))}"]` : "");
    return (other) => (one.id ? other.querySelector(`#${CSS.escape(one.id)}`)
      : other.querySelectorAll(like)[[...live.querySelectorAll(like)].indexOf(one)]);
  };
  const swap = (fresh) => {
    const live = document.getElementById("live"), [x, y] = [scrollX, scrollY];
    live.querySelectorAll("details[id]").forEach((one) => {
      const same = fresh.querySelector(`details#${CSS.escape(one.id)}`);
      if (same) same.open = one.open;
    });
    const moved = [...live.querySelectorAll("*")].filter((one) => one.scrollTop || one.scrollLeft);
    const boxes = moved.map((one) => [place(live, one)(fresh), one.scrollTop, one.scrollLeft]);
    const focused = live.contains(document.activeElement) && place(live, document.activeElement)(fresh);
    live.replaceWith(document.adoptNode(fresh));
    boxes.forEach(([box, top, left]) => { if (box) { box.scrollTop = top; box.scrollLeft = left; } });
    if (focused) focused.focus({ preventScroll: true });
    scrollTo(x, y);
    if (window.htmx) window.htmx.process(fresh);
    document.dispatchEvent(new CustomEvent("live:refreshed"));
  };
  const refresh = async () => {
    timer = 0;
    if (over || document.hidden) return;      // still wanted: once, when the page is shown again
    if (held()) { timer = setTimeout(refresh, LEAST_MS); return; }
    busy = true; wanted = false; last = performance.now();
    const asked = new Date();
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
      if (answer.redirected && new URL(answer.url).pathname !== location.pathname) return finish(OVER[4401]);
      if (answer.status === 403 || answer.status === 404) return finish(OVER[4000 + answer.status]);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = answer.ok && page.getElementById("live");
      if (!fresh) throw new Error(`answered ${answer.status}`);
      if (held()) wanted = true;              // somebody began meanwhile
      else { swap(fresh); asOf = asked; }
      slow = !opened && failures > 0;
    } catch {
      slow = false;
      wanted = true;
      last = performance.now() + (opened ? SHORTEST_MS : SLOW_MS);
    } finally {
      busy = false;
      state();
      if (wanted) soon();
    }
  };
  const soon = () => {
    wanted = true;
    if (!timer && !busy) timer = setTimeout(refresh, Math.max(0, last + LEAST_MS - performance.now()));
  };

  // --- following ---

  const hear = (frame) => {
    if (frame.type === "init") {
      // Between the page and this moment, or while the connection was away, something may have happened.
      if (failures || frame.number !== undefined) soon();
      opened = true; slow = false; failures = 0;
    } else if (["job", "jobs", "resync", "status"].includes(frame.type)) soon();
    else if (frame.type === "ping" && !wanted && !busy) asOf = new Date();
    if (frame.number !== undefined) number = frame.number;
    state();
  };
  const lost = (code) => {
    clearTimeout(silence);
    socket = null; opened = false; failures += 1;
    if (OVER[code]) return finish(OVER[code]);
    const wait = Math.min(LONGEST_MS, SHORTEST_MS * 2 ** (failures - 1));
    clearTimeout(retry);
    retry = setTimeout(connect, wait * (0.5 + Math.random() / 2));
    return state();
  };
  const drop = () => {                        // not waiting for the other side, which may be gone
    const gone = socket;
    if (gone) { lost(0); gone.close(); }
  };
  const listen = () => {                      // a connection that says nothing for long is none
    clearTimeout(silence);
    silence = setTimeout(drop, SILENT_MS);
  };
  const connect = () => {
    clearTimeout(retry);
    if (over || socket) return;
    const at = new URL(path, location.href);
    at.protocol = at.protocol.replace("http", "ws");
    if (number !== null) at.searchParams.set("after", number);
    const own = new WebSocket(at);
    socket = own;
    listen();
    own.onmessage = (event) => { if (own === socket) { listen(); hear(JSON.parse(event.data)); } };
    own.onclose = (event) => { if (own === socket) lost(event.code); };
  };

  setInterval(() => { if (!opened && failures) soon(); }, SLOW_MS);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && wanted) soon(); });
  addEventListener("offline", drop);
  addEventListener("online", () => { failures = Math.min(failures, 1); connect(); });
  addEventListener("pageshow", (event) => { if (event.persisted) { connect(); soon(); } });
  connect();
})();
