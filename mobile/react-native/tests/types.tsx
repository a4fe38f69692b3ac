/** Compiled only: where React Native's own types, or those of this package, no longer refuse these lines, tsc fails. */
import type { ReactElement } from "react";
import { Button } from "react-native";
import type { RunInput } from "../src/index.js";
import type { Spec } from "../src/NativeEdgekit.js";

// @ts-expect-error a handler is a function
export const wrongProperty = (): ReactElement => <Button title="Search" onPress={1} />;

// @ts-expect-error the picture is called image, as in the web library
export const wrongInput: RunInput = { picture: "file:///photo.jpg" };

// @ts-expect-error the module needs the number of a runner
export const wrongCall = (module: Spec): Promise<void> => module.dispose();
