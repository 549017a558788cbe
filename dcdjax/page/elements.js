// Names, attributes and texts enter; elements leave. Text is always text: no word ever becomes markup.

// In a notebook's frame the page has no address of its own.
const INSIDE = location.protocol === "about:";

const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// A word keeps its own direction of writing, whatever stands around it.
const bdi = (text) => element("bdi", {}, text);

// What leads to another word or topic. The address is for another window; going there is done here.
function link(address, follow, ...children) {
  const followed = (event) => {
    if (!INSIDE && (event.metaKey || event.ctrlKey || event.shiftKey)) return;
    event.preventDefault();
    follow();
  };
  return element("a", { href: address, click: followed }, ...children);
}

// A bar of parts, each a share of the whole width. By the style's own interface: the page allows no attributes.
function bar(...parts) {
  const whole = element("span", { class: "bar", "aria-hidden": "true" });
  for (const [kind, share] of parts) {
    const part = element("span", { class: kind });
    part.style.width = `${(100 * share).toFixed(2)}%`;
    whole.append(part);
  }
  return whole;
}

// A line of a list: what leads on, a number, and that number as a bar.
const barRow = (leading, number, share) =>
  element("li", {}, leading, element("span", { class: "number" }, number), bar(["plain", share]));

const whole = (number) => number.toLocaleString("en-US");
const counted = (number, thing) => `${whole(number)} ${thing}${number === 1 ? "" : "s"}`;
const probability = (value) => (value === 0 ? "0" : value.toPrecision(3));
const percent = (share) => {
  const small = share > 0 && share < 0.1;
  return `${small ? (100 * share).toPrecision(2) : Math.round(100 * share)} %`;
};
