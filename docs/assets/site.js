// Figures of several panels have a class of their own: the narrow page scrolls them.
"use strict";
const mark = (image) => {
  if (image.naturalWidth > 1200) image.parentElement.classList.add("panels");
};
document.querySelectorAll("p > img:only-child").forEach((image) => {
  if (image.complete) mark(image);
  else image.addEventListener("load", () => mark(image));
});

// Formulas, set by KaTeX; a formula that cannot be read is an error on the console.
document.querySelectorAll(".arithmatex").forEach((formula) => {
  const text = formula.textContent.trim().slice(2, -2); // without \( \) or \[ \]
  katex.render(text, formula, { displayMode: formula.tagName === "DIV" });
});
