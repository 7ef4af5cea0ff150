// Verifies signed requests with libraries of others, web-bot-auth and http-message-sig of npm. Standard input is JSON:
// {"jwk": KEY, "requests": [{"method", "url", "headers": {NAME: VALUE}}]}. The output has a line for each request.
import { readFileSync } from "node:fs";
import { verify } from "web-bot-auth";
import { verifierFromJWK } from "web-bot-auth/crypto";
import { component, verifySignature, webcrypto } from "http-message-sig";

const { jwk, requests } = JSON.parse(readFileSync(0, "utf8"));
const key = await crypto.subtle.importKey("jwk", jwk, "Ed25519", true, ["verify"]);

async function check({ method, url, headers }) {
  const request = new Request(url, { method, headers });
  if (request.headers.get("signature-agent").startsWith('"')) {
    await verify(request, await verifierFromJWK(jwk)); // web-bot-auth knows the older form alone
    return;
  }
  await verifySignature(request, {
    policy: {
      algorithms: ["ed25519"],
      requiredComponents: ["@authority", component("signature-agent", { key: "sig1" })],
      requiredParameters: ["created", "expires", "keyid", "nonce", "tag"],
      maxAge: 60,
      validate: (signature) => signature.parameters.keyid === jwk.kid && signature.parameters.tag === "web-bot-auth",
    },
    resolveVerifier: () => webcrypto.verifier(key),
  });
}

for (const request of requests) {
  try {
    await check(request);
    console.log("valid");
  } catch (err) {
    console.log(`invalid: ${err.message}`);
  }
}
