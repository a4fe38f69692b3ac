plugins {
    alias(libs.plugins.android.application)
    alias(libs.plugins.kotlin.android)
}

// Written by `edgekit assets android build/arr-coc-tiny --into mobile/android/sample`.
apply(from = "edgekit/edgekit.gradle")

android {
    namespace = "org.edgekit.sample"
    compileSdk = 35

    defaultConfig {
        applicationId = "org.edgekit.sample"
        minSdk = 26
        targetSdk = 35
        versionCode = 1
        versionName = "0.1.0"
        ndk {
            abiFilters += listOf("arm64-v8a", "x86_64")
        }
    }

    // ExecuTorch and PyTorch Mobile bring two fbjni, which no app can have at once.
    flavorDimensions += "runtime"
    productFlavors {
        create("executorch") { dimension = "runtime" }
        create("pytorchMobile") { dimension = "runtime" }
    }

    buildTypes {
        release {
            isMinifyEnabled = true
            isShrinkResources = true
            proguardFiles(getDefaultProguardFile("proguard-android-optimize.txt"))
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
    implementation(libs.androidx.activity)
    implementation(libs.androidx.appcompat)
    implementation(libs.litert)
    implementation(libs.onnxruntime)
    "executorchImplementation"(libs.executorch)
    "pytorchMobileImplementation"(libs.pytorch.lite)
}
