plugins {
    alias(libs.plugins.android.application)
    alias(libs.plugins.kotlin.android)
}

android {
    namespace = "org.edgekit.bench"
    compileSdk = 35

    defaultConfig {
        applicationId = "org.edgekit.bench"
        minSdk = 26
        targetSdk = 35
        versionCode = 1
        versionName = "0.1.0"
        ndk {
            abiFilters += listOf("arm64-v8a", "x86_64") // `edgekit_apps.adb.ABIS`
        }
    }

    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_17
        targetCompatibility = JavaVersion.VERSION_17
    }

    packaging {
        jniLibs.pickFirsts += listOf("**/libc++_shared.so")
    }
}

kotlin {
    jvmToolchain(17)
}

dependencies {
    implementation(project(":edgekit"))
    implementation(libs.kotlinx.serialization.json)
    // Not PyTorch Mobile: its fbjni is another one than ExecuTorch's.
    implementation(libs.executorch)
    implementation(libs.litert)
    implementation(libs.onnxruntime)
    implementation(fileTree("libs") { include("*.aar", "*.jar") }) // MNN, where somebody built it
}
