/** InputSize: which sizes of a picture a model takes, and which of them fits a picture's shape. */
import { ShapeError } from "./errors.js";
import { type Axis, type Manifest, type Tensor, accepts, sizeOf } from "./manifest.js";
import type { Size } from "./types.js";

export type { Size };

type Declared = Pick<Manifest, "inputs" | "axes">;

/** The size that a run has, when none is given or some are: the manifest's defaults fill the rest. @throws ShapeError */
export function checkedSize(manifest: Declared, given: Partial<Size> | undefined): Size {
  const [rows, columns] = sides(manifest);
  const size = { height: given?.height ?? sizeOf(manifest, rows) ?? 0, width: given?.width ?? sizeOf(manifest, columns) ?? 0 };
  checkSide(manifest, "height", rows, size.height);
  checkSide(manifest, "width", columns, size.width);
  return size;
}

/**
 * The size whose proportions are nearest to a picture's, with about as many pixels as the default; the default where the
 * model takes one size only.
 */
export function fittingSize(manifest: Declared, picture: Size): Size {
  const [rows, columns] = sides(manifest);
  const usual = { height: sizeOf(manifest, rows) ?? 0, width: sizeOf(manifest, columns) ?? 0 };
  const [down, across] = [dynamicAxis(manifest, rows), dynamicAxis(manifest, columns)];
  if (!down || !across || picture.height < 1 || picture.width < 1) return usual;
  let [best, least] = [usual, Infinity];
  for (const height of multiples(down)) {
    for (const width of multiples(across)) {
      const shape = Math.abs(Math.log((width * picture.height) / (height * picture.width)));
      const area = Math.abs(Math.log((width * height) / (usual.width * usual.height)));
      const cost = shape + AREA_WEIGHT * area;
      if (cost < least) [best, least] = [{ height, width }, cost];
    }
  }
  return best;
}

const AREA_WEIGHT = 0.25; // a picture squeezed by 5 % is as bad as 20 % more pixels

function* multiples({ minimum, maximum, multiple_of: step }: Axis): Generator<number> {
  for (let side = minimum; side <= maximum; side += step) yield side;
}

function sides({ inputs }: Declared): readonly [Dimension, Dimension] {
  const [, , rows, columns] = inputs.find((i) => i.kind === "image")?.shape ?? [];
  return [rows, columns];
}

type Dimension = Tensor["shape"][number] | undefined;

function dynamicAxis({ axes }: Declared, dimension: Dimension): Axis | undefined {
  const axis = typeof dimension === "string" ? axes[dimension] : undefined;
  return axis?.dynamic ? axis : undefined;
}

function checkSide(manifest: Declared, side: string, dimension: Dimension, value: number): void {
  const axis = dynamicAxis(manifest, dimension);
  if (axis) {
    if (accepts(axis, value)) return;
    throw new ShapeError(
      `the ${side} ${String(value)} is not supported: the model accepts multiples of ${String(axis.multiple_of)} from ${String(axis.minimum)} to ${String(axis.maximum)}`,
    );
  }
  const fixed = sizeOf(manifest, dimension);
  if (value !== fixed) throw new ShapeError(`the ${side} ${String(value)} is not supported: the model accepts only ${String(fixed)}`);
}
