package com.facebook.react.bridge;

public class ReactApplicationContext extends android.content.Context {}
