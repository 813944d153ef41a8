// grpc_client.js: @grpc/grpc-js, unmodified, over the project's own .proto files: one JSON line with what it saw. Arguments: address, proto folder.
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, protos] = process.argv.slice(2);
const definition = loader.loadSync(["inference.proto", "health.proto"], { includeDirs: [protos], longs: Number, keepCase: true });
const api = grpc.loadPackageDefinition(definition);
const client = new api.inference.GRPCInferenceService(address, grpc.credentials.createInsecure());
const health = new api.grpc.health.v1.Health(address, grpc.credentials.createInsecure());

const unary = (c, method, request, metadata = new grpc.Metadata(), options = {}) => new Promise((resolve) =>
  c[method](request, metadata, options, (error, answer) => resolve(error ? { code: error.code, details: error.details } : answer)));

const values = Array.from({ length: 16 }, (_, i) => i);
const input = (name) => ({ name, datatype: "INT32", shape: [1, 16], contents: { int_contents: values } });
const infer = (id) => ({ model_name: "simple", id, inputs: [input("INPUT0"), input("INPUT1")] });
const numbers = (bytes) => Array.from(new Int32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)));

function stream(n) {
  return new Promise((resolve) => {
    const seen = [];
    const call = client.ModelStreamInfer();
    call.on("data", (m) => seen.push([m.infer_response.id, m.error_message]));
    call.on("end", () => resolve(seen));
    call.on("error", (e) => resolve({ code: e.code }));
    for (let i = 0; i < n; i++) call.write(i === 2 ? { model_name: "no-such", id: "2" } : infer(String(i)));
    call.end();
  });
}

function cancelled() {
  return new Promise((resolve) => {
    const call = client.ModelInfer({ model_name: "slow", inputs: [{ name: "X", datatype: "INT32", shape: [1, 1], contents: { int_contents: [1] } }] },
      (e) => resolve(e && e.code));
    setTimeout(() => call.cancel(), 100);
  });
}

async function main() {
  const out = {};
  out.live = await unary(client, "ServerLive", {});
  out.health = await unary(health, "Check", { service: "" });
  const answer = await unary(client, "ModelInfer", infer("7"));
  out.infer = { id: answer.id, sums: numbers(answer.raw_output_contents[0]) };
  out.missing = await unary(client, "ModelInfer", { model_name: "no-such" });
  out.deadline = await unary(client, "ModelInfer", { model_name: "slow", inputs: [{ name: "X", datatype: "INT32", shape: [1, 1], contents: { int_contents: [1] } }] },
    new grpc.Metadata(), { deadline: Date.now() + 150 });
  out.config = (await unary(client, "ModelConfig", { name: "simple" })).config.input.map((i) => [i.name, i.data_type, i.dims]);
  out.stream = await stream(5);
  out.cancelled = await cancelled();
  console.log(JSON.stringify(out));
  process.exit(0);
}
main();
