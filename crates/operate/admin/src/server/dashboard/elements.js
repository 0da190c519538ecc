// Elements of the page. Only changed elements are updated, so focus stays and a screen reader announces only what is
// new.
const SVG = "http://www.w3.org/2000/svg";

export const $ = id => document.getElementById(id);

export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

export function mark(element, name, value) {
  if (value === undefined || value === null) delete element.dataset[name];
  else if (element.dataset[name] !== String(value)) element.dataset[name] = value;
}

export function attribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

export function make(name, attributes = {}, ...inside) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
}

export function draw(name, attributes = {}, ...inside) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
}

// Gives `parent` one child for each item, identified by its key, in this order. `create` makes a child, `fill` updates
// it.
export function each(parent, items, key, create, fill) {
  const known = new Map([...parent.children].map(child => [child.dataset.key, child]));
  items.forEach((item, at) => {
    const name = String(key(item));
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] ?? null);
    fill(child, item);
  });
  for (const child of known.values()) child.remove();
}

// Fills a list with lines of text, each with its kind.
export function lines(list, items) {
  each(list, items.map((item, at) => ({ at, ...item })), item => item.at, () => make("li"),
    (li, item) => { text(li, item.text); mark(li, "is", item.is); });
}

// Makes a table row that can turn into a card: a head, and cells that carry the names of their columns.
export function row(table, head) {
  const names = [...table.tHead.rows[0].cells].map(cell => cell.textContent);
  const tr = make("tr", { role: "row" }, make("th", { role: "rowheader", scope: "row" }, head));
  for (const name of names.slice(1)) tr.append(make("td", { role: "cell", "data-name": name }));
  return tr;
}
