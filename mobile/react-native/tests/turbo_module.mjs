/** For Node: `react-native` is its registry of native modules alone, and a test says which modules are in it. */
import { register } from "node:module";

const registry = "export const TurboModuleRegistry = { getEnforcing: (name) => globalThis.turboModules[name] };";
const hooks = `export const resolve = (name, context, next) => name === "react-native"
  ? { url: "data:text/javascript,${encodeURIComponent(registry)}", shortCircuit: true } : next(name, context);`;
globalThis.turboModules = {};
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
