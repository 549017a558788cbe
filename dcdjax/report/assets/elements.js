// Make HTML elements and format numbers. Words are only inserted as text, so no word can become markup.

// Inside a notebook the page is a frame without an address.
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

// Keep the writing direction of a word (left or right) apart from the text around it.
const bdi = (text) => element("bdi", {}, text);

// Make a link to a word or topic. A click follows it on this page; the address is for opening another window.
function link(address, follow, ...children) {
  const followed = (event) => {
    if (!INSIDE && (event.metaKey || event.ctrlKey || event.shiftKey)) return;
    event.preventDefault();
    follow();
  };
  return element("a", { href: address, click: followed }, ...children);
}

// Draw a bar of colored parts, each a share of the width. Set through `style.width`, because the page's security
// policy forbids style attributes.
function bar(...parts) {
  const whole = element("span", { class: "bar", "aria-hidden": "true" });
  for (const [kind, share] of parts) {
    const part = element("span", { class: kind });
    part.style.width = `${(100 * share).toFixed(2)}%`;
    whole.append(part);
  }
  return whole;
}

// Make a list item: a link, a number, and the number as a bar.
const barRow = (content, number, share) =>
  element("li", {}, content, element("span", { class: "number" }, number), bar(["plain", share]));

const whole = (number) => number.toLocaleString("en-US");
const counted = (number, thing) => `${whole(number)} ${thing}${number === 1 ? "" : "s"}`;
const probability = (value) => (value === 0 ? "0" : value.toPrecision(3));
const percent = (share) => {
  const small = share > 0 && share < 0.1;
  return `${small ? (100 * share).toPrecision(2) : Math.round(100 * share)} %`;
};
const signed = (value) => value.toFixed(2).replace(/^-0\.00$/, "0.00").replace("-", "−");
