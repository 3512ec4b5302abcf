// Says so where the page's module, or one that it imports, does not arrive; it comes before it in the page.
addEventListener('error', ({target}) => {
  if (target?.localName !== 'script') return;
  document.getElementById('problem-text').textContent = 'A part of this page is missing on its server (app.js or what it imports). Reload the page; if it stays so, the site was not copied whole.';
  document.getElementById('problem').hidden = false;
}, true);
