package com.facebook.react.common.annotations;

public @interface StableReactNativeAPI {}
