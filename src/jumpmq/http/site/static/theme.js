// Set the theme before the first drawing: the last chosen theme, or the system's.
const chosen = localStorage.getItem("jumpmq.theme");
if (chosen) document.documentElement.dataset.theme = chosen;
