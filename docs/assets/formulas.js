// Formulas, set by KaTeX; a formula that cannot be read is an error on the console.
"use strict";
document.querySelectorAll(".arithmatex").forEach((formula) => {
  const text = formula.textContent.trim().slice(2, -2); // without \( \) or \[ \]
  katex.render(text, formula, { displayMode: formula.tagName === "DIV" });
});
