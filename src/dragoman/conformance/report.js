// A cell's link opens its details, wherever they are folded away; without script the link still leads there.
function show() {
  const it = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!it) return;
  for (let at = it; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  it.scrollIntoView({ block: "start" });
}
addEventListener("hashchange", show);
addEventListener("load", show);
document.addEventListener("click", (event) => {
  const link = event.target.closest("td a");
  if (link && link.hash === location.hash) show();
});
