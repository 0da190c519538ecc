// Returns the faults in a page's layout: a list of sentences, empty if there are none.
(() => {
  const faults = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) {
    faults.push(`the page is ${document.documentElement.scrollWidth} wide on a screen of ${width}`);
  }
  const name = element => `${element.tagName.toLowerCase()}${element.id ? "#" + element.id : ""} "${(element.textContent || element.id).trim().slice(0, 40)}"`;
  const visible = element => element.checkVisibility({ visibilityProperty: true });

  // An open dialog covers everything else.
  const inFront = document.querySelector("dialog[open]") ?? document.body;

  // Text and controls must not overlap. Elements for screen readers alone occupy no space.
  const clipped = element => Boolean(element) && (getComputedStyle(element).clipPath !== "none" || clipped(element.parentElement));
  const boxes = [];
  const walker = document.createTreeWalker(inFront, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || !visible(parent) || parent.closest("script, style, option, .skip, button") || clipped(parent)) continue;
    // A scrolling list shows only part of its contents.
    const scrolled = parent.closest("#events, #lines, .scrolls")?.getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (scrolled && (box.bottom > scrolled.bottom || box.top < scrolled.top)) continue;
      boxes.push({ element: parent, box });
    }
  }
  for (const element of inFront.querySelectorAll("button, input, select")) {
    if (visible(element)) boxes.push({ element, box: element.getBoundingClientRect() });
  }
  for (const { element, box } of boxes) {
    if (box.left < -0.5 || box.right > width + 0.5) faults.push(`${name(element)} is cut off at ${box.left.toFixed()}..${box.right.toFixed()}`);
    if (element.matches("button") && (element.scrollWidth > element.clientWidth || box.height < 24)) faults.push(`${name(element)} is too small`);
  }
  for (let a = 0; a < boxes.length; a += 1) {
    for (let b = a + 1; b < boxes.length; b += 1) {
      const [one, other] = [boxes[a], boxes[b]];
      if (one.element === other.element || one.element.contains(other.element) || other.element.contains(one.element)) continue;
      const wide = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
      const high = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
      if (wide > 1 && high > 3) faults.push(`${name(one.element)} overlaps ${name(other.element)}`);
    }
  }
  // Text stays within its frame.
  for (const frame of document.querySelectorAll(".card, .lane, .role, #client")) {
    const around = frame.getBoundingClientRect();
    for (const { element, box } of boxes) {
      if (frame.contains(element) && (box.right > around.right + 0.5 || box.left < around.left - 0.5)) faults.push(`${name(element)} leaves its frame`);
    }
  }

  // Text has enough contrast with its background.
  const color = text => { const all = text.match(/[\d.]+/g).map(Number); return { rgb: all.slice(0, 3), alpha: all[3] ?? 1 }; };
  const light = rgb => {
    const [r, g, b] = rgb.map(part => { part /= 255; return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const { rgb, alpha } = color(getComputedStyle(at).backgroundColor);
      if (alpha === 1) return rgb;
    }
    return [255, 255, 255];
  };
  const seen = new Set();
  for (const { element } of boxes) {
    if (seen.has(element) || element.closest("svg, [type=range]")) continue;
    seen.add(element);
    const [one, other] = [light(color(getComputedStyle(element).color).rgb), light(behind(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const off = element.getAttribute("aria-disabled") === "true";
    if (contrast < (off ? 3 : 4.5)) faults.push(`${name(element)} has a contrast of ${contrast.toFixed(2)}`);
  }

  // The demo's picture has its arrows, and each begins and ends within the picture.
  const stage = document.getElementById("lanes") && document.getElementById("stage").getBoundingClientRect();
  const arrows = [...document.querySelectorAll("#arrows path")];
  if (stage && arrows.length < 4) faults.push(`${arrows.length} arrows`);
  for (const arrow of arrows) {
    const box = arrow.getBoundingClientRect();
    if (box.left < stage.left - 2 || box.right > stage.right + 2 || box.top < stage.top - 2 || box.bottom > stage.bottom + 2) faults.push("an arrow leaves the picture");
  }
  // Every control has a name.
  for (const element of document.querySelectorAll("button, input")) {
    if (visible(element) && !element.textContent.trim() && !element.labels?.length && !element.ariaLabel) faults.push(`${name(element)} has no name`);
  }
  return faults;
})()
