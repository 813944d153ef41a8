// Embeddings of token id lists by llama.cpp, through the npm package node-llama-cpp (3.21.1). It must lie below the folder with node_modules:
//   node llama_embeddings.mjs MODEL.gguf IDS.json OUT.json [CONTEXT]
import {getLlama} from "node-llama-cpp";
import fs from "fs";
const llama = await getLlama({gpu:false, build:"never", logLevel:"error"});
const model = await llama.loadModel({modelPath: process.argv[2]});
const ids = JSON.parse(fs.readFileSync(process.argv[3]));
const ctx = await model.createEmbeddingContext({contextSize: Number(process.argv[5] ?? 64), threads: 1});
const out=[];
for (const x of ids) { const e = await ctx.getEmbeddingFor(x); out.push(Array.from(e.vector)); }
fs.writeFileSync(process.argv[4], JSON.stringify(out));
process.exit(0);
