// Probabilities of llama.cpp (npm package node-llama-cpp) for given tokens, position by position.
//   node llm_oracle.mjs NODE_DIR MODEL.gguf IDS.json OUT.json [ADAPTER.gguf]     (NODE_DIR holds node_modules)
import fs from "fs";
import path from "path";
import {createRequire} from "module";
import {pathToFileURL} from "url";

const [dir, modelPath, idsPath, outPath, lora] = process.argv.slice(2);
const from = createRequire(path.resolve(dir, "package.json"));
const {getLlama} = await import(pathToFileURL(path.join(path.dirname(from.resolve("node-llama-cpp")), "index.js")));
const llama = await getLlama({gpu: false, build: "never", logLevel: "error"});
const model = await llama.loadModel({modelPath: path.resolve(modelPath)});
const all = JSON.parse(fs.readFileSync(idsPath));
const longest = Math.max(...all.map(ids => ids.length));
const ctx = await model.createContext({contextSize: Math.max(64, longest + 8), threads: 2, sequences: 1, flashAttention: false,
                                       lora: lora && path.resolve(lora)});
const out = [];
for (const ids of all) {
    const seq = ctx.getSequence();
    const r = await seq.controlledEvaluate(ids.map(t => [t, {generateNext: {probabilities: true}}]));
    out.push(r.map(x => [...x.next.probabilities]));
    await seq.dispose();
}
fs.writeFileSync(outPath, JSON.stringify(out));
process.exit(0);
