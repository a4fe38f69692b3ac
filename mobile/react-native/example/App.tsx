/** A picture, words to look for in it, and the most relevant patch. The bundle is that of `edgekit assets` for arr-coc-tiny. */
import { EdgekitError, type Result, type Runner, load } from "@edgekit/react-native";
import { type ReactElement, useEffect, useState } from "react";
import { Button, Image, ScrollView, Text, TextInput } from "react-native";

export default function App({ picture }: { readonly picture: string }): ReactElement {
  const [runner, setRunner] = useState<Runner>();
  const [words, setWords] = useState("red circle");
  const [status, setStatus] = useState("Verifying the files …");

  useEffect(() => {
    const loading = load("arr-coc-tiny");
    loading.then(
      (loaded) => {
        setRunner(loaded);
        setStatus(`${loaded.info.target} is ready on ${loaded.info.device}`);
      },
      (error: unknown) => setStatus(sentence(error)),
    );
    return () => void loading.then((loaded) => loaded.dispose(), () => undefined);
  }, []);

  const search = (): void => {
    runner?.run({ image: picture, query: words, k: 1 }).then(
      (result) => setStatus(describe(result)),
      (error: unknown) => setStatus(sentence(error)),
    );
  };

  return (
    <ScrollView contentInsetAdjustmentBehavior="automatic">
      <Image source={{ uri: picture }} style={{ aspectRatio: 1 }} accessibilityLabel="The picture" />
      <TextInput value={words} onChangeText={setWords} onSubmitEditing={search} accessibilityLabel="Words to look for" />
      <Button title="Search" onPress={search} disabled={!runner} />
      <Text>{status}</Text>
    </ScrollView>
  );
}

function describe({ relevance, indices, rows, columns, present, ms }: Result): string {
  const [best = 0] = indices;
  const where = `row ${Math.floor(best / columns) + 1}, column ${(best % columns) + 1} of ${rows} x ${columns}`;
  const what = present === false ? "Nothing like this here; the highest relevance is in" : "Most relevant:";
  return `${ms.toFixed(0)} ms. ${what} ${where} (${(relevance[best] ?? 0).toFixed(2)}).`;
}

function sentence(error: unknown): string {
  return error instanceof EdgekitError ? `${error.message} (${error.code})` : String(error);
}
