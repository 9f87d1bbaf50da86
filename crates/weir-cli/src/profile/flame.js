"use strict";
// A node is [name, live bytes, allocated bytes, grown bytes, children]; names are [function, place].
const { names, root } = JSON.parse(document.getElementById("data").textContent);
const [NAME, LIVE, ALLOCATED, GROWN, CHILDREN] = [0, 1, 2, 3, 4];
const ROW = 20;
// A box narrower than this, in pixels, is not drawn.
const LEAST = 1;
const graph = document.getElementById("graph");
const details = document.getElementById("details");
const found = document.getElementById("found");
const search = document.getElementById("search");
const switches = [...document.querySelectorAll("[data-measure]")];
const hint = details.textContent;
let measure = Number(switches.find((it) => it.getAttribute("aria-pressed") === "true").dataset.measure);
// The boxes from the root to the one that is shown alone.
let path = [root];

function bytes(count) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let size = Math.abs(count);
    let unit = 0;
    while (size >= 1024 && unit < units.length - 1) {
        size /= 1024;
        unit += 1;
    }
    return (count < 0 ? "-" : "") + (unit ? size.toFixed(1) : size) + " " + units[unit];
}

function hue(text) {
    let hash = 7;
    for (let i = 0; i < text.length; i += 1) hash = (hash * 31 + text.charCodeAt(i)) % 9973;
    return (hash * 137) % 360;
}

function describe(node) {
    const [name, place] = names[node[NAME]];
    const share = (of) => (of[measure] ? ((100 * node[measure]) / of[measure]).toFixed(1) + " %" : "-");
    const grown = graph.dataset.growth ? `, ${node[GROWN] < 0 ? "" : "+"}${bytes(node[GROWN])} since the beginning` : "";
    details.textContent =
        `${name}  ${place}\nlive ${bytes(node[LIVE])}${grown}; allocated ${bytes(node[ALLOCATED])}; ` +
        `${share(root)} of all, ${share(path[path.length - 1])} of what is shown`;
}

function matches(node, wanted) {
    return names[node[NAME]].some((text) => text.toLowerCase().includes(wanted));
}

function box(node, trail, depth, left, width, wanted) {
    const it = document.createElement("button");
    const [name, place] = names[node[NAME]];
    it.type = "button";
    it.textContent = width > 24 ? name : "";
    it.setAttribute("aria-label", `${name} ${place}: ${bytes(node[measure])}`);
    it.style.left = left + "px";
    it.style.width = Math.max(width - 1, LEAST) + "px";
    it.style.top = depth * ROW + "px";
    it.style.setProperty("--hue", hue(name));
    it.classList.toggle("above", trail.length < path.length);
    it.classList.toggle("match", wanted !== "" && matches(node, wanted));
    it.addEventListener("click", () => show(trail));
    for (const event of ["mouseenter", "focus"]) it.addEventListener(event, () => describe(node));
    graph.append(it);
}

// Draws a node and what it called; returns the number of rows.
function draw(node, trail, depth, left, width, wanted) {
    box(node, trail, depth, left, width, wanted);
    let rows = depth + 1;
    const children = [...node[CHILDREN]].sort((a, b) => b[measure] - a[measure]);
    for (const child of children) {
        const part = node[measure] ? (width * child[measure]) / node[measure] : 0;
        if (part < LEAST) break;
        rows = Math.max(rows, draw(child, [...trail, child], depth + 1, left, part, wanted));
        left += part;
    }
    return rows;
}

// Bytes of the outermost nodes that match.
function sum(node, wanted) {
    if (matches(node, wanted)) return node[measure];
    return node[CHILDREN].reduce((all, child) => all + sum(child, wanted), 0);
}

function render() {
    const wanted = search.value.trim().toLowerCase();
    const shown = path[path.length - 1];
    const width = graph.clientWidth;
    graph.replaceChildren();
    graph.classList.toggle("searched", wanted !== "");
    path.slice(0, -1).forEach((node, depth) => box(node, path.slice(0, depth + 1), depth, 0, width, wanted));
    graph.style.height = draw(shown, path, path.length - 1, 0, width, wanted) * ROW + "px";
    const share = (part) => (shown[measure] ? ((100 * part) / shown[measure]).toFixed(1) : "0.0");
    const part = wanted === "" ? 0 : sum(shown, wanted);
    found.textContent = wanted === "" ? "" : `${bytes(part)}, ${share(part)} % of what is shown`;
}

function show(trail) {
    path = trail;
    render();
    describe(path[path.length - 1]);
}

for (const it of switches) {
    it.addEventListener("click", () => {
        measure = Number(it.dataset.measure);
        for (const other of switches) other.setAttribute("aria-pressed", String(other === it));
        render();
    });
}
document.getElementById("reset").addEventListener("click", () => {
    search.value = "";
    path = [root];
    details.textContent = hint;
    render();
});
search.addEventListener("input", render);
addEventListener("resize", render);
addEventListener("keydown", (event) => {
    if (event.key === "Escape") show([root]);
});
render();
