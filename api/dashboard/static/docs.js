// The operations of the REST interface, by Swagger UI, from the description that the service gives.
"use strict";

const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#operations",
  deepLinking: true,
  validatorUrl: null, // it would ask another host
  defaultModelsExpandDepth: -1,
  displayRequestDuration: true,
});
