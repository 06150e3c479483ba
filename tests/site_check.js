() => {
  const faults = [];
  const content = document.querySelector(".md-content") || document.body;
  const short = (text) => text.trim().replace(/\s+/g, " ").slice(0, 60);
  const inside = (node, selector) => node.parentElement && node.parentElement.closest(selector);

  // Markdown as text, and words of code on two lines.
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) {
    const node = words.currentNode;
    if (inside(node, "script, style, noscript, textarea, .katex-mathml")) continue;
    if (!inside(node, "code, pre")) {
      if (/```|~~~|\*\*/.test(node.data)) faults.push(`Markdown as text: ${short(node.data)}`);
      continue;
    }
    if (inside(node, "pre") || !content.contains(node)) continue;
    for (const word of node.data.matchAll(/\w{2,40}/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (lines.size > 1) faults.push(`a word of code is broken: ${word[0]}`);
    }
  }

  // Wider than the page, or cut off, and no way to scroll.
  const scrolls = (style) => ["auto", "scroll"].includes(style.overflowX);
  const sheet = document.documentElement;
  if (sheet.scrollWidth > innerWidth + 1) faults.push(`the page is ${sheet.scrollWidth} wide`);
  const edge = content.getBoundingClientRect().right;
  for (const element of content.querySelectorAll("*")) {
    if (element.closest(".katex-mathml, svg, .md-clipboard, button, .md-sidebar")) continue;
    const style = getComputedStyle(element);
    const hides = ["hidden", "clip"].includes(style.overflowX);
    if (hides && element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 1)
      faults.push(`cut off: <${element.localName}> ${short(element.textContent)}`);
    if (scrolls(style) && element.scrollWidth > element.clientWidth && style.scrollbarWidth === "none")
      faults.push(`no scroll bar: ${short(element.textContent)}`);
    const box = element.getBoundingClientRect();
    if (!box.width || box.right <= edge + 1) continue;
    let around = element;
    while (around !== content && !scrolls(getComputedStyle(around))) around = around.parentElement;
    if (around === content) faults.push(`too wide: <${element.localName}> ${short(element.textContent)}`);
  }

  for (const image of document.images)
    if (image.complete && !image.naturalWidth) faults.push(`no image: ${image.getAttribute("src")}`);
  for (const formula of document.querySelectorAll(".arithmatex:not(:has(.katex))"))
    faults.push(`a formula is not set: ${short(formula.textContent)}`);
  return [...new Set(faults)];
}
