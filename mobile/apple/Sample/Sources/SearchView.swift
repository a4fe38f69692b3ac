import PhotosUI
import SwiftUI

/// A picture, what to look for in it, and a test of this device.
struct SearchView: View {
    @StateObject private var search = Search()
    @State private var item: PhotosPickerItem?

    var body: some View {
        ScrollView {
            VStack(spacing: 16) {
                if let shown = search.shown {
                    Image(decorative: shown, scale: 1)
                        .resizable()
                        .scaledToFit()
                        .accessibilityLabel("The picture, with the relevance of each patch over it")
                }
                PhotosPicker("Choose a picture", selection: $item, matching: .images)
                TextField("What to look for", text: $search.words)
                    .textFieldStyle(.roundedBorder)
                    .onSubmit { Task { await search.scorePicture() } }
                Picker("Model", selection: $search.target) {
                    ForEach(ArrCocTiny.Models.allCases, id: \.self) { Text($0.rawValue) }
                }
                Button("Test this device") { Task { await search.check() } }
                    .buttonStyle(.borderedProminent)
                if let result = search.result {
                    ShareLink("Share result.json", item: result)
                }
                Text(search.status)
                    .font(.footnote)
                    .textSelection(.enabled)
            }
            .padding()
        }
        .task {
            if CommandLine.arguments.contains("--check") { await search.checkAll() }
            await search.open()
        }
        .onChange(of: search.target) { Task { await search.open() } }
        .onChange(of: item) {
            Task {
                guard let data = try? await item?.loadTransferable(type: Data.self) else { return }
                await search.take(data)
            }
        }
    }
}
