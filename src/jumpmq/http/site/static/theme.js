// Before anything is drawn: the theme that was chosen here last; without a choice, the system's.
const chosen = localStorage.getItem("jumpmq.theme");
if (chosen) document.documentElement.dataset.theme = chosen;
