import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist/", "lib/", "public/", "node_modules/", "tests/package/", "*.js", "*.mjs"] },
  tseslint.configs.strictTypeChecked,
  { languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } } },
  {
    files: ["src/**", "page/**"],
    rules: {
      // Exactly one file touches the runtime.
      "no-restricted-imports": ["error", { paths: [{ name: "onnxruntime-web", message: "session.ts alone touches onnxruntime-web" }] }],
    },
  },
  { files: ["src/session.ts"], rules: { "no-restricted-imports": "off" } },
);
