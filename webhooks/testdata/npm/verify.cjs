// Reads cases from standard input and writes for each "ok" or the verifier's message, as one JSON list.
"use strict";
const { createRequire } = require("node:module");
const { join } = require("node:path");
const { readFileSync } = require("node:fs");

const { Webhook } = createRequire(join(process.argv[2], "package.json"))("standardwebhooks");

const verdicts = JSON.parse(readFileSync(0, "utf8")).map(({ secret, raw, headers, body }) => {
  try {
    new Webhook(secret, raw ? { format: "raw" } : undefined).verify(body, headers);
    return "ok";
  } catch (error) {
    return error.message;
  }
});
process.stdout.write(JSON.stringify(verdicts));
