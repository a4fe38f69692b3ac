plugins {
    alias(libs.plugins.android.library)
    alias(libs.plugins.kotlin.android)
    alias(libs.plugins.kotlin.serialization)
}

android {
    namespace = "org.edgekit"
    compileSdk = 35

    defaultConfig {
        minSdk = 26
        consumerProguardFiles("consumer-rules.pro")
    }

    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_17
        targetCompatibility = JavaVersion.VERSION_17
    }

    testOptions {
        unitTests.all { it.systemProperty("edgekit.golden", rootDir.resolve("../../tests/golden").path) }
    }
}

kotlin {
    jvmToolchain(17)
}

dependencies {
    api(libs.kotlinx.coroutines.core)
    implementation(libs.kotlinx.serialization.json)

    // An app adds the runtimes that it uses, and CameraX where it has a camera.
    compileOnly(libs.androidx.camera.core)
    compileOnly(libs.executorch)
    compileOnly(libs.litert)
    compileOnly(libs.onnxruntime)
    compileOnly(libs.pytorch.lite)
    compileOnly(project(":mnn"))

    testImplementation(libs.junit)
    testImplementation(libs.kotlin.test.junit)
}
