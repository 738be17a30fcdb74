// Naming clusters: one line teaches all that are named, since teaching numbers the rest anew.

let teachLine = null;
function setUpTeaching() {
  teachLine = commandLine("");
  byId("teaching").append(
    make("p", {
      text: "Name the clusters that show one thing; this line turns them into classes. Name all of them before you use it: afterwards the others have new numbers.",
    }),
    teachLine,
  );
  tellTeaching();
}
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`); // as a shell reads it
function tellTeaching() {
  const largest = data.findings && data.findings.clusters.length ? data.findings.clusters[0].number : 1;
  const names = state.names.size ? [...state.names].sort((a, b) => a[0] - b[0]) : [[largest, "NAME"]];
  const file = quoted(data.model);
  teachLine.say(
    `usfda teach ${file} ${names.map(([number, name]) => `--name ${quoted(`${number}=${name}`)}`).join(" ")} -o ${quoted(`${data.model.replace(/\.usfda$/, "")}-taught.usfda`)}`,
  );
}
function nameBox(number) {
  return make("input", {
    type: "text",
    placeholder: "name it",
    "aria-label": `Name of cluster ${number}`,
    value: state.names.get(number) || "",
    maxlength: "255",
    autocomplete: "off",
    input: (event) => {
      const name = event.target.value.trim();
      if (name) state.names.set(number, name);
      else state.names.delete(number);
      tellTeaching();
    },
  });
}
