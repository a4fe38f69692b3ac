// MNN's Java classes by their signatures, for the compiler only: MNN publishes none of its current versions (README.md).
plugins {
    `java-library`
}

java {
    sourceCompatibility = JavaVersion.VERSION_17
    targetCompatibility = JavaVersion.VERSION_17
}
