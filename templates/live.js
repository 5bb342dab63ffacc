"use strict";
const lost = document.getElementById("lost");
// What a reader did to an element must outlive its replacement, so it needs a name.
const parts = "details, summary, .wide, input, a, button";
const named = (place) => {
  const found = new Map();
  for (const part of place.querySelectorAll(parts)) {
    const home = part.closest("[id]");
    const key = part.value && part.name ? part.name + " " + part.value
      : home.id + " " + [...home.querySelectorAll(parts)].indexOf(part);
    found.set(key, part);
  }
  return found;
};
const replace = (place, html) => {
  const before = named(place);
  const focused = document.activeElement;
  const states = new Map([...before].map(([key, part]) => [key, {
    open: part.open, checked: part.checked, top: part.scrollTop, left: part.scrollLeft,
    focused: part === focused,
  }]));
  place.innerHTML = html;
  for (const [key, part] of named(place)) {
    const state = states.get(key);
    if (!state) continue;
    if (state.open) part.open = true;
    if (state.checked) part.checked = true;
    part.scrollTop = state.top;
    part.scrollLeft = state.left;
    if (state.focused) part.focus({ preventScroll: true });
  }
  for (const button of place.querySelectorAll("button[data-csv]")) button.hidden = false;
};
// A key or button that goes down on one element and up on its replacement would press neither.
let pressed = false;
const held = new Map();
const show = (region, html) => {
  if (pressed) {
    held.set(region, html);
    return;
  }
  const place = document.querySelector('[data-region="' + region + '"]');
  if (place) replace(place, html);
};
const release = () => {
  pressed = false;
  // The click of what was pressed comes first.
  setTimeout(() => {
    if (pressed) return;
    for (const [region, html] of held) show(region, html);
    held.clear();
  });
};
for (const name of ["keydown", "pointerdown"]) addEventListener(name, () => { pressed = true; });
for (const name of ["keyup", "pointerup", "pointercancel", "contextmenu", "blur"]) {
  addEventListener(name, release);
}
let source = null;
let waiting = 0;
const follow = () => {
  clearTimeout(waiting);
  if (source || document.hidden) return;
  source = new EventSource(document.body.dataset.events);
  source.addEventListener("open", () => { lost.hidden = true; });
  source.addEventListener("error", () => {
    lost.hidden = false;
    // The browser tries again by itself, but not after an answer that says no.
    if (source && source.readyState === EventSource.CLOSED) {
      leave();
      waiting = setTimeout(follow, 3000);
    }
  });
  source.addEventListener("message", (event) => {
    const news = JSON.parse(event.data);
    if (news.region === "ended") {
      leave();
      location.reload();
      return;
    }
    show(news.region, news.html);
  });
};
const leave = () => {
  clearTimeout(waiting);
  if (source) source.close();
  source = null;
};
// A browser opens few connections to one server: a page that nobody sees needs none.
document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
addEventListener("pagehide", leave);
addEventListener("pageshow", follow);
