/**
 * Builds what the npm package has beside its sources: lib/ (JavaScript and types) and native/ (edgekit's Kotlin and Swift
 * libraries), so that an app needs no checkout of edgekit.
 */
import { execFileSync } from "node:child_process";
import { cpSync, rmSync } from "node:fs";

for (const folder of ["build/package", "lib", "native"]) rmSync(folder, { recursive: true, force: true });
// The types of the web library lie outside of this folder, so tsc repeats the repository's folders.
execFileSync("npx", ["tsc", "--noEmit", "false", "--declaration", "--rootDir", "../..", "--outDir", "build/package"], { stdio: "inherit" });
cpSync("build/package/mobile/react-native/src", "lib", { recursive: true });

const ANDROID = ["edgekit/consumer-rules.pro", "edgekit/src/main/kotlin", "mnn/src/main/java"];
for (const path of ANDROID) cpSync(`../android/${path}`, `native/android/${path}`, { recursive: true });
for (const path of ["Package.swift", "Sources", "Tests"]) cpSync(`../apple/${path}`, `native/apple/${path}`, { recursive: true });
