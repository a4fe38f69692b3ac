package com.facebook.react.bridge

/** React Native's own makes maps of its C++ library; these are its maps of plain Java. */
object Arguments {
    @JvmStatic fun createMap(): WritableMap = JavaOnlyMap()

    @JvmStatic fun createArray(): WritableArray = JavaOnlyArray()
}
