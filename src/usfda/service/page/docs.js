// The service's own description, /openapi.json, as a page.

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

const about = await (await fetch("/openapi.json")).json();
const secured = Boolean(about.components?.securitySchemes);

/** A schema with what it refers to, as far down as it is of use. */
function plain(schema, depth = 7) {
  if (!schema || depth === 0) return "…";
  if (schema.$ref) return plain(about.components.schemas[schema.$ref.split("/").pop()], depth);
  if (schema.anyOf) return [...new Set(schema.anyOf.map((one) => JSON.stringify(plain(one, depth))))].map(JSON.parse).reduce(
    (a, b) => (typeof a === "string" && typeof b === "string" ? `${a} or ${b}` : a));
  if (schema.enum || schema.const) return (schema.enum ?? [schema.const]).join(" or ");
  if (schema.prefixItems) return schema.prefixItems.map((one) => plain(one, depth - 1));
  if (schema.type === "array") return [plain(schema.items, depth - 1)];
  if (schema.examples) return schema.examples[0];
  if (schema.properties) {
    return Object.fromEntries(Object.entries(schema.properties).map(([name, one]) => [name, plain(one, depth - 1)]));
  }
  return schema.format ?? schema.type ?? "any";
}

function example(method, path, operation) {
  const parts = ["curl"];
  if (method !== "get") parts.push(`-X ${method.toUpperCase()}`);
  if (secured && operation.security) parts.push("-H 'Authorization: Bearer TOKEN'");
  const body = operation.requestBody?.content ?? {};
  if (body["multipart/form-data"]) parts.push("-F files=@a.jpg -F files=@b.jpg");
  if (body["application/json"]) {
    parts.push(`-H 'Content-Type: application/json' -d '${JSON.stringify(plain(body["application/json"].schema))}'`);
  }
  return [...parts, `${location.origin}${path}`].join(" ");
}

function card(method, path, operation) {
  const made = element("section", { className: "card" },
    element("h2", {}, element("span", { className: "tag known", textContent: method.toUpperCase() }), path),
    element("p", { textContent: operation.description.replaceAll("*", "") }),
    element("pre", { textContent: example(method, path, operation) }));
  const list = element("dl");
  for (const one of operation.parameters ?? []) {
    list.append(element("dt", { textContent: one.name }), element("dd", { textContent: one.description ?? "" }));
  }
  for (const [status, one] of Object.entries(operation.responses)) {
    list.append(element("dt", { textContent: status }), element("dd", { textContent: one.description }));
  }
  made.append(list);
  const good = Object.entries(operation.responses).find(([status]) => status.startsWith("2"));
  const schema = good?.[1].content?.["application/json"]?.schema;
  if (schema && Object.keys(schema).length) {
    made.append(element("pre", { textContent: JSON.stringify(plain(schema), null, 1) }));
  }
  return made;
}

document.getElementById("about").textContent = `${about.info.description.replaceAll("*", "")} Version ${about.info.version}.`;
const operations = Object.entries(about.paths).flatMap(([path, methods]) => (
  Object.entries(methods).map(([method, operation]) => card(method, path, operation))));
document.getElementById("operations").append(...operations);
