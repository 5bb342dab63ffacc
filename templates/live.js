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
let waiting = 0;
let looking = false;
const known = new Map();
const look = async () => {
  clearTimeout(waiting);
  // A page that nobody sees needs no news.
  if (looking || document.hidden) return;
  looking = true;
  try {
    const answer = await fetch(location.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const places = page.querySelectorAll("[data-region]");
    if (!places.length) {
      // The run has ended, or is gone.
      location.reload();
      return;
    }
    lost.hidden = true;
    for (const place of places) {
      const region = place.dataset.region;
      if (known.get(region) === place.innerHTML) continue;
      known.set(region, place.innerHTML);
      show(region, place.innerHTML);
    }
  } catch {
    lost.hidden = false;
  }
  looking = false;
  document.dispatchEvent(new Event("looked"));
  waiting = setTimeout(look, Number(document.body.dataset.every));
};
document.addEventListener("visibilitychange", look);
addEventListener("pageshow", look);
addEventListener("pagehide", () => clearTimeout(waiting));
