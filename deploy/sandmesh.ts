#!/usr/bin/env bun
// The `sandmesh` program: the client's commands, and those that run a mesh on this machine.
import manifest from "../package.json" with { type: "json" };
import { createProgram, runProgram } from "../sdk/cli/program.ts";
import { addBench } from "./commands/bench.ts";
import { addKubernetes } from "./commands/kubernetes.ts";
import { addConfig, addDoctor, addDown, addUp, addVersion } from "./commands/mesh.ts";

const program = createProgram().version(manifest.version);
program.commandsGroup("A mesh on this machine:");
addUp(program);
addDown(program);
addDoctor(program);
addConfig(program);
addVersion(program);
addBench(program);
program.commandsGroup("A mesh on Kubernetes:");
addKubernetes(program);
await runProgram(program);
